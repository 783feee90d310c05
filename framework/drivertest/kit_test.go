package drivertest_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"nicd/drivers/e1000"
	"nicd/drivers/vmxnet3"
	"nicd/framework"
	"nicd/framework/drivertest"
	"nicd/framework/drivertest/simbench"
)

// patience is how long a check of a broken driver may wait for what does not come.
const patience = time.Second

// TestChecks: there are as many as promised, each has a name of its own and says
// in a sentence what holds.
func TestChecks(t *testing.T) {
	all := drivertest.Describe()
	if len(all) < 60 {
		t.Errorf("%d checks", len(all))
	}
	seen := map[string]bool{}
	for _, k := range all {
		category, what, ok := strings.Cut(k.Name, ".")
		if !ok || category == "" || what == "" || seen[k.Name] {
			t.Errorf("check %q", k.Name)
		}
		if !strings.HasSuffix(k.Doc, ".") || len(k.Doc) < 20 {
			t.Errorf("check %s says %q", k.Name, k.Doc)
		}
		seen[k.Name] = true
	}
}

// TestLinterKnowsAllQuirks: of every quirk that is not one driver's own the linter
// sees something, or says why it can't.
func TestLinterKnowsAllQuirks(t *testing.T) {
	for _, d := range []framework.Driver{vmxnet3.New(), e1000.New()} {
		model := simbench.Models(d)[len(simbench.Models(d))-1]
		b, err := simbench.New(d, model, simbench.Options{})
		if err != nil {
			t.Fatal(err)
		}
		b.Quick = true
		b.Select = func(name string) bool { return strings.HasPrefix(name, "quirk.") || name == "attach.info" }
		r := drivertest.Check(t.Context(), b)
		if !r.Ok() {
			t.Errorf("%+v", r.Checks)
		}
		agreed := 0
		for _, f := range r.Quirks {
			if f.Declared == "" || f.Because == "" {
				t.Errorf("%+v: not declared", f)
			}
			if f.Seen == "nothing that bears on it" {
				t.Errorf("%s: %s: the linter does not look for it, and does not say why", model, f.Quirk)
			}
			if f.Agreement == drivertest.Agrees {
				agreed++
			}
		}
		if agreed < 8 {
			t.Errorf("%s: %d quirks agree", model, agreed)
		}
	}
}

// TestReport: what is not applicable says why, and the JSON has all.
func TestReport(t *testing.T) {
	b, err := simbench.New(e1000.New(), "82540EM", simbench.Options{Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	b.Quick = true
	b.Select = func(name string) bool {
		return strings.HasPrefix(name, "lro.") || strings.HasPrefix(name, "rss.") || strings.HasPrefix(name, "attach.")
	}
	r := drivertest.Check(t.Context(), b)
	if !r.Ok() || r.NotApplicable < 8 || r.Model != "82540EM" {
		t.Errorf("%d passed, %d failed, %d not applicable, model %q", r.Passed, r.Failed, r.NotApplicable, r.Model)
	}
	for _, c := range r.Checks {
		if c.Status == drivertest.NotApplicable && c.Reason == "" || c.Status == drivertest.Failed {
			t.Errorf("%+v", c)
		}
	}
	text, err := json.Marshal(r)
	if err != nil || !strings.Contains(string(text), `"not_applicable":`) || !strings.Contains(string(text), `"agreement":"agrees"`) && !strings.Contains(string(text), `"agreement":"not seen"`) {
		t.Errorf("%v: %s", err, text)
	}
}

// TestCancelled: a run that is interrupted is not a good one.
func TestCancelled(t *testing.T) {
	b, err := simbench.New(e1000.New(), "82574L", simbench.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := drivertest.Check(ctx, b); r.Ok() || r.Failed == 0 {
		t.Errorf("%d failed", r.Failed)
	}
}

// TestUnknownModel names those that there are.
func TestUnknownModel(t *testing.T) {
	if _, err := simbench.New(e1000.New(), "82999", simbench.Options{}); err == nil || !strings.Contains(err.Error(), "82574L") {
		t.Errorf("error %v", err)
	}
}

// TestProgress: who runs the checks as tests is told of each as well.
func TestProgress(t *testing.T) {
	b, err := simbench.New(e1000.New(), "82574L", simbench.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	b.Progress = func(r drivertest.Result) { told = append(told, r.Name+" "+string(r.Status)) }
	b.Select = func(name string) bool { return name == "attach.info" || name == "attach.no-memory" }
	drivertest.Run(t, b)
	if got := strings.Join(told, ", "); got != "attach.info passed, attach.no-memory not applicable" {
		t.Errorf("told of %q", got)
	}
}
