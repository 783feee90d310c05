package matrix

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"nicd/config"
	"nicd/daemon"
	"nicd/drivers/e1000"
	"nicd/drivers/vmxnet3"
	"nicd/framework"
	"nicd/framework/plugin"
	"nicd/internal/netspace"
	"nicd/internal/testns"
)

func bundled() []framework.Driver { return []framework.Driver{vmxnet3.New(), e1000.New()} }

func TestMain(m *testing.M) {
	plugin.ServeBundled(bundled()...) // does not return in a driver's process
	os.Exit(m.Run())
}

// TestRowsMakeSense: names are unique, what a row is compared with comes before it,
// and each config is good, or refused for the word that is missing in it.
func TestRowsMakeSense(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Rows() {
		if seen[r.ID] {
			t.Errorf("%s: twice", r.ID)
		}
		seen[r.ID] = true
		if !seen[r.base()] {
			t.Errorf("%s is compared with %s, which does not come before it", r.ID, r.Base)
		}
		if r.Why == "" || !strings.HasSuffix(r.Why, ".") || r.Group == "" {
			t.Errorf("%s: not explained", r.ID)
		}
		for _, text := range []string{r.Config(), r.interfaces(newTAPs().ports)} {
			_, err := config.Parse(r.ID+".hcl", []byte(text), daemon.Vocabulary([]string{"vmxnet3", "e1000"}))
			if refused := err != nil && strings.Contains(err.Error(), "unsafe = true"); err != nil && !refused || refused != (r.Expect == Refused) {
				t.Errorf("%s: %v\n%s", r.ID, err, text)
			}
		}
	}
}

// TestEveryControlHasItsRefusal: what must collapse can't be had without the word,
// and a row beside it shows that.
func TestEveryControlHasItsRefusal(t *testing.T) {
	rows, controls := Rows(), 0
	for i, r := range rows {
		if r.Unsafe != (r.Expect == Collapses) {
			t.Errorf("%s: unsafe %v, expected to be %s", r.ID, r.Unsafe, r.Expect)
		}
		if r.Expect != Collapses {
			continue
		}
		controls++
		twin := rows[i+1]
		r.Unsafe = false
		if twin.Expect != Refused || twin.Config() != r.Config() {
			t.Errorf("%s: %s is not the same without the word", r.ID, twin.ID)
		}
	}
	if controls < 3 {
		t.Errorf("%d negative controls", controls)
	}
}

func TestSelect(t *testing.T) {
	var ids []string
	for _, r := range Select(Rows(), []string{"r2-hyb", "msi"}) {
		ids = append(ids, r.ID)
	}
	if got := strings.Join(ids, " "); got != "r2-none r2-hybrid msi-x msi" {
		t.Errorf("selected %s", got)
	}
}

// TestRun runs some rows and looks at what does not depend on how fast or busy
// the machine is: who merged, what arrived, what was refused. How much faster one
// row is than another is what a run is for, not a test.
func TestRun(t *testing.T) { someRows(t, false) }

// TestRunTAP is the same with the kernel's TCP, where the controls have to show, too.
func TestRunTAP(t *testing.T) {
	testns.NeedTAP(t)
	if _, err := exec.LookPath(iperf); err != nil {
		testns.Unavailable(t, err.Error())
	}
	someRows(t, true)
}

func someRows(t *testing.T, tap bool) {
	var lines []string
	report, err := Run(t.Context(), Options{
		Bundled: bundled(), Log: zerolog.Nop(), Time: 500 * time.Millisecond, TAP: tap,
		Rows:     Select(Rows(), []string{"control", "as-declared", "first-verdict", "toggle-off", "toggle-under", "2020-8"}),
		Progress: func(r Result) { lines = append(lines, r.Line()) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + strings.Join(lines, "\n"))
	if len(report.Results) != 8 || len(lines) != 8 || report.Ports == "tap" != tap {
		t.Errorf("%+v", report)
	}
	if r := report.find("as-declared"); r.Gbps == 0 || r.SegmentsPerPacket < 4 || r.CPUSecondsPerGB == 0 {
		t.Errorf("the device merges, and nothing comes of it: %+v", r)
	}
	if r := report.find("2020-8"); r.Gbps == 0 || r.PacketsPerSecond == 0 {
		t.Errorf("the NIC sends nothing: %+v", r)
	}
	if r := report.find("first-verdict"); r.Gbps > collapseRatio*report.find("control-none").Gbps {
		t.Errorf("packets whose verdict is read in the wrong place were believed: %+v", r)
	}
	if r := report.find("first-verdict-refused"); r.Refusal == "" || r.Gbps != 0 {
		t.Errorf("%+v", r)
	}
	if r := report.find("toggle-off"); r.Gbps == 0 || r.SegmentsPerPacket > 1.5 || r.IdleEnd {
		t.Errorf("LRO is off: %+v", r)
	}
}

// TestProgram: a program that ends too early is reported with what it said last.
func TestProgram(t *testing.T) {
	testns.NeedTAP(t)
	space, err := netspace.New()
	if err != nil {
		t.Fatal(err)
	}
	defer space.Close()
	p, err := run(space, "ready", "sh", "-c", "echo begin; echo the end >&2; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.awaitReady(t.Context()); err == nil || !strings.Contains(err.Error(), "ended: the end") {
		t.Errorf("%v", err)
	}
	p.stop()
	if p, err = run(space, "ready", "sh", "-c", "echo is ready; exec sleep 1000"); err != nil {
		t.Fatal(err)
	}
	if err := p.awaitReady(t.Context()); err != nil || p.broken() != nil {
		t.Errorf("%v, %v", err, p.broken())
	}
	p.stop()
	if p.broken() == nil {
		t.Error("it goes on")
	}
}

func sample() *Report {
	r := &Report{Seconds: 2, Rounds: 1, Results: []Result{
		{Row: row(Row{ID: "a", Group: "<g> & more", Why: "A \"base\"."}), Gbps: 2, Idle: 0.25},
		{Row: row(Row{ID: "b", Base: "a", Group: "<g> & more", LRO: "software", Why: "B."}), Gbps: 5},
		{Row: row(Row{ID: "c", Base: "a", Group: "h", Expect: Collapses, Why: "C."}), Gbps: 0.1},
		{Row: row(Row{ID: "d", Base: "a", Group: "h", Expect: Refused, Why: "D."}), Refusal: "no <b>way</b>"},
	}}
	r.compare()
	return r
}

func TestJudgement(t *testing.T) {
	r := sample()
	if !r.OK || r.Results[1].Ratio != 2.5 || r.Results[2].Ratio != 0.05 || r.Results[3].Ratio != 0 {
		t.Fatalf("%+v", r)
	}
	r.Results[2].Gbps = 1
	r.compare()
	if r.OK || len(r.Results[2].Problems) != 1 || !strings.Contains(r.Results[2].Problems[0], "does not show") {
		t.Errorf("a control that does not collapse: %+v", r.Results[2])
	}
	m := median([]Result{{Gbps: 3}, {Gbps: 1, Problems: []string{"x"}}, {Gbps: 2}})
	if m.Gbps != 2 || len(m.Problems) != 1 {
		t.Errorf("median %+v", m)
	}
	var refusal Result
	refusal.Expect = Refused
	if !refused(&refusal, errors.New("no such file")) || len(refusal.Problems) != 1 {
		t.Errorf("refused for another reason: %+v", refusal)
	}
}

// TestReports: all rows are in each, in order, and each is well-formed.
func TestReports(t *testing.T) {
	r := sample()
	var text, svg, html, data bytes.Buffer
	r.Print(&text)
	for _, err := range []error{r.SVG(&svg), r.HTML(&html), r.JSON(&data)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	wellFormed(t, svg.String())
	var back Report
	if err := json.Unmarshal(data.Bytes(), &back); err != nil || len(back.Results) != 4 || back.Results[1].Ratio != 2.5 || back.Results[3].Refusal != "no <b>way</b>" {
		t.Errorf("JSON: %v\n%s", err, data.String())
	}
	if strings.Contains(html.String(), "<b>way") || strings.Contains(svg.String(), "<g> & more") {
		t.Error("texts are not escaped")
	}
	for name, out := range map[string]string{"text": text.String(), "svg": svg.String(), "html": html.String()} {
		at := -1
		for _, want := range []string{"vmxnet3 r3, receive, lro none", "vmxnet3 r3, receive, lro software", "refused"} {
			next := strings.Index(out[at+1:], want)
			if next < 0 {
				t.Errorf("%s: %q is missing or out of order:\n%s", name, want, out)
				break
			}
			at += next + 1
		}
	}
	if svg.Len() == 0 || strings.Count(svg.String(), "<rect") != 5 {
		t.Errorf("%d rectangles, want 4 bars and the ground", strings.Count(svg.String(), "<rect"))
	}
}

func wellFormed(t *testing.T, text string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		_, err := d.Token()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
	}
}
