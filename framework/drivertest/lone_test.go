package drivertest_test

import (
	"strings"
	"testing"
	"time"

	"nicd/drivers/e1000"
	"nicd/drivers/vmxnet3"
	"nicd/framework"
	"nicd/framework/drivertest"
	"nicd/framework/drivertest/rig"
	"nicd/framework/drivertest/simbench"
)

// lone is a bench whose far end is there and not to be used.
func lone(t *testing.T, d framework.Driver, model string) drivertest.Bench {
	t.Helper()
	b, err := simbench.New(d, model, simbench.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b.Lacks[drivertest.FarEnd] = "nobody is there"
	b.Quick = true
	b.Progress = func(r drivertest.Result) {
		if r.Seconds > 1 {
			t.Logf("%s: %s after %.1f s", r.Name, r.Status, r.Seconds)
		}
	}
	return b
}

// Without a far end, what needs one is not applicable and says so; what does not,
// is checked. Nothing fails for want of it, and nothing waits for it.
func TestNoFarEnd(t *testing.T) {
	for _, c := range []struct {
		driver framework.Driver
		model  string
	}{{vmxnet3.New(), "vmxnet3-3"}, {e1000.New(), "82574L"}} {
		r := drivertest.Check(t.Context(), lone(t, c.driver, c.model))
		alone := 0
		for _, k := range r.Checks {
			if k.Status == drivertest.Failed || k.Seconds > 10 {
				t.Errorf("%s: %s %s after %.1f s: %v", c.model, k.Name, k.Status, k.Seconds, k.Problems)
			}
			if strings.Contains(k.Reason, "nobody is there") {
				alone++
			}
		}
		if r.Passed < 5 || alone < 60 {
			t.Errorf("%s: %d passed, %d for want of a far end", c.model, r.Passed, alone)
		}
		t.Logf("%s: %d passed, %d not applicable, %d of them for want of a far end, %.0f s", c.model, r.Passed, r.NotApplicable, alone, r.Seconds)
	}
}

// A cable that is not there is no mistake of the driver's.
func TestNoLink(t *testing.T) {
	b := lone(t, e1000.New(), "82574L")
	open := b.Open
	b.Open = func(s drivertest.Setup) (*rig.Station, error) {
		st, err := open(s)
		if err == nil {
			st.SetLink(false)
			st.SetLink = nil
		}
		return st, err
	}
	b.Patience = 20 * time.Second
	b.Select = func(name string) bool { return name == "stop.twice" || name == "stop.quiet" || name == "attach.info" }
	r := drivertest.Check(t.Context(), b)
	for _, k := range r.Checks {
		if k.Status == drivertest.Failed || k.Status == drivertest.NotApplicable && !strings.Contains(k.Reason, "link does not come up") {
			t.Errorf("%s: %s %s %v", k.Name, k.Status, k.Reason, k.Problems)
		}
	}
	if !r.Ok() || r.NotApplicable == 0 || r.Passed == 0 {
		t.Errorf("%+v", r)
	}
}
