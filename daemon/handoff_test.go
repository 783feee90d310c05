package daemon

import (
	"strings"
	"testing"
	"time"

	"nicd/framework/engine"
)

// inlineRuns is how often senders did what an interface's transmit tasks do.
func (d *Daemon) inlineRuns(t *testing.T, name string) (runs uint64) {
	t.Helper()
	s, err := d.find(name).counters()
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range s.Tx {
		runs += q[engine.TxInlineRuns]
	}
	return runs
}

// TestTxHandoff: who sends is a setting that is changed under traffic, in both
// directions, and a plugin's senders can't do its work.
func TestTxHandoff(t *testing.T) {
	d := startTest(t, inProcess+pairText(1, "vmxnet3"))
	set := func(value string) {
		t.Helper()
		r, err := d.Set(t.Context(), "a1", []Assignment{{Name: "tx-handoff", Value: value}}, false)
		if err != nil {
			t.Fatal(err)
		}
		if text := r.String(); !strings.Contains(text, "tx-handoff") || !strings.Contains(text, "live") {
			t.Errorf("set tx-handoff=%s: %v", value, text)
		}
		if got := d.find("a1").detail().TxHandoff; got != value {
			t.Errorf("shows %q after set %q", got, value)
		}
	}
	const some = 1 << 20
	awaitData(t, d, some, "ab1", "ba1")
	if n := d.inlineRuns(t, "a1"); n != 0 {
		t.Errorf("%d inline runs while all senders abdicate", n)
	}
	for range 3 {
		before := d.inlineRuns(t, "a1")
		set("inline")
		awaitData(t, d, some, "ab1", "ba1")
		until(t, "senders do the task's work", 20*time.Second, func() bool { return d.inlineRuns(t, "a1") > before })
		set("abdicate")
		awaitData(t, d, some, "ab1", "ba1")
	}
	for _, p := range d.Audit() {
		t.Error(p)
	}
}

func TestTxHandoffOfAPlugin(t *testing.T) {
	i, control, _ := changeable(t, "vmx0")
	d := &Daemon{interfaces: []*netInterface{i}}
	_, err := d.Set(t.Context(), "vmx0", []Assignment{{Name: "tx-handoff", Value: "inline"}}, false)
	if err == nil || !strings.Contains(err.Error(), `in mode "plugin"`) || strings.Contains(err.Error(), "\n") {
		t.Errorf("inline transmit of a plugin: %v", err)
	}
	if len(control.calls) != 0 {
		t.Errorf("refused, and the engine was told %v", control.calls)
	}
}
