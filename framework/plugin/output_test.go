package plugin

import (
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// Nothing that a plugin prints on stderr can harm nicd; go-plugin's own parser
// panics on the first of these lines.
func TestRecordsOfAPlugin(t *testing.T) {
	p, j := start(t, "records")
	var all []map[string]any
	eventually(t, "no records", func() bool {
		all = j.records(t)
		return len(all) > 0 && strings.HasPrefix(all[len(all)-1]["message"].(string), "xxx")
	})
	for _, r := range all {
		if r["driver"] != "testnic" || r["pid"] != float64(p.PID()) || r["generation"] != float64(4) {
			t.Errorf("record %.200v lacks where it is from", r)
		}
	}
	if r := all[0]; r["level"] != "warn" || r["plugin_message"] != float64(1) {
		t.Errorf("record %v", r)
	}
	if r := all[1]; r["level"] != "error" || r["message"] != "ring is full" || r["queue"] != float64(3) {
		t.Errorf("record %v", r)
	}
	if r := all[2]; r["level"] != "error" || r["message"] != "my end, not yours" {
		t.Errorf("record %v", r)
	}
	if r := all[3]; r["level"] != "info" || r["message"] != "in hclog's words" || r["@timestamp"] != nil {
		t.Errorf("record %v", r)
	}
	if r := all[4]; r["level"] != "warn" || r["stream"] != "stderr" || r["message"] != "panic: half a rec{ord" {
		t.Errorf("record %v", r)
	}
}

// Nor harm the terminal that nicd's log is on: no part of a record gets there as it
// is, and none passes for nicd's own.
func TestRecordsOnATerminal(t *testing.T) {
	const evil = `\u001b[2J\u009b2J\n\u007f`
	for _, line := range []string{
		`{"` + evil + `":1}`, `{"caller":"` + evil + `"}`, `{"a":"` + evil + `"}`, `{"a":{"` + evil + `":"` + evil + `"}}`,
		`{"a":[["` + evil + `"]]}`, `{"error":"` + evil + `"}`, `{"message":"` + evil + `","level":"` + evil + `"}`, `{"error":{"` + evil + `":1}}`,
	} {
		var screen strings.Builder
		o := &output{log: zerolog.New(zerolog.ConsoleWriter{Out: &screen, NoColor: true}), stream: "stderr"}
		o.read(strings.NewReader(line + "\n"))
		text, ended := strings.CutSuffix(screen.String(), "\n")
		if !ended || printable(text) != text {
			t.Errorf("%s is printed as %q", line, text)
		}
	}
	j := &journal{}
	o := &output{log: zerolog.New(j).With().Str("interface", "vmx0").Logger(), stream: "stderr"}
	o.read(strings.NewReader(`{"interface":"em0"}` + "\n"))
	if r := j.records(t)[0]; r["interface"] != "vmx0" {
		t.Errorf("record %v", r)
	}
}

// A driver that prints to stdout does not block, and what it says is logged.
func TestStdoutIsDrained(t *testing.T) {
	_, j := start(t, "chatty")
	eventually(t, "not all was read", func() bool {
		n := 0
		for _, r := range j.records(t) {
			if r["stream"] == "stdout" && strings.Contains(r["message"].(string), "talk talk") {
				n++
			}
		}
		return n >= 1000
	})
}

func FuzzOutput(f *testing.F) {
	f.Add([]byte(`{"@message": 1}`))
	f.Add([]byte("{\"level\":\"panic\",\"message\":null,\"time\":[]}\n\x00\xff"))
	f.Add([]byte(`{"a":{"b":[1,2,{"c":null}]},"level":"disabled"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		j := &journal{}
		o := &output{log: zerolog.New(j), stream: "stderr"}
		o.read(strings.NewReader(string(b)))
		for _, r := range j.records(t) {
			if l, _ := r["level"].(string); l == "fatal" || l == "panic" || l == "" {
				t.Errorf("record %v", r)
			}
		}
		if strings.ContainsAny(o.lastLine(), "\n") {
			t.Errorf("last line %q", o.lastLine())
		}
	})
}

// A plugin that prints without end fills neither the log nor nicd's time, and
// the log says that something is missing.
func TestOutputIsBounded(t *testing.T) {
	j := &journal{}
	now := time.Unix(1000, 0)
	o := &output{log: zerolog.New(j), stream: "stderr"}
	o.may.now = func() time.Time { return now }
	o.read(strings.NewReader(strings.Repeat("again\n", 2*logBurst)))
	if n := len(j.records(t)); n != logBurst {
		t.Fatalf("%d records, want %d", n, logBurst)
	}
	now = now.Add(time.Second)
	o.read(strings.NewReader(strings.Repeat("later\n", 2*logPerSecond)))
	all := j.records(t)
	if n := len(all) - logBurst; n != logPerSecond+1 {
		t.Fatalf("%d records in a second, want %d", n, logPerSecond+1)
	}
	if r := all[logBurst]; r["lines"] != float64(logBurst) {
		t.Fatalf("what was left out: %v", r)
	}
	if o.lastLine() != "later" {
		t.Fatalf("last line %q", o.lastLine())
	}
}
