package framework

import "testing"

func TestFaults(t *testing.T) {
	var e Events
	e.Fault(1<<2, "queue %d stopped", 2)
	e.Fault(1<<0|1<<5, "nonsense")
	if e.QueueFault != 0b100101 || e.Reason != "queue 2 stopped; nonsense" || e.DeviceFault {
		t.Errorf("events %+v", e)
	}
}
