package daemon

import (
	"fmt"
	"time"

	"nicd/console"
	"nicd/proto/adminpb"
)

// Measurement is a stretch of a daemon's life that is being reported on.
type Measurement struct {
	daemon *Daemon
	began  time.Time
	cpu    float64
	status *adminpb.StatusReply
}

// Measure begins a measurement.
func (d *Daemon) Measure() *Measurement {
	s := d.Status()
	return &Measurement{daemon: d, began: time.Now(), cpu: totalCPU(s), status: s}
}

func totalCPU(s *adminpb.StatusReply) float64 {
	sum := s.CpuSeconds
	for _, i := range s.Interfaces {
		sum += i.PluginCpuSeconds
	}
	return sum
}

// Report ends the measurement. A report is ok if every interface and stream
// still runs, every stream moved data, and all counters add up.
func (m *Measurement) Report() *adminpb.Report {
	s := m.daemon.Status()
	r := &adminpb.Report{
		Version:           s.Version,
		Seconds:           time.Since(m.began).Seconds(),
		CpuSeconds:        totalCPU(s) - m.cpu,
		PeakResidentBytes: m.daemon.peak.get(),
	}
	problem := func(format string, args ...any) { r.Problems = append(r.Problems, fmt.Sprintf(format, args...)) }
	r.Interfaces, r.Streams = console.Rates(m.status, s, r.Seconds)
	for _, i := range r.Interfaces {
		if i.Interface.State != running {
			problem("interface %s: %s: %s", i.Interface.Name, i.Interface.State, i.Interface.StateReason)
		}
		if i.Violation = m.daemon.find(i.Interface.Name).violation(); i.Violation != "" {
			problem("interface %s: counters do not add up: %s", i.Interface.Name, i.Violation)
		}
	}
	var moved float64
	for _, t := range r.Streams {
		moved += t.Gbps * r.Seconds / 8
		if t.Gbps == 0 || t.Stream.State != running {
			problem("stream %s: %s: moved no data: %s", t.Stream.Name, t.Stream.State, t.Stream.StateReason)
		}
	}
	if moved > 0 {
		r.CpuSecondsPerGigabyte = r.CpuSeconds / moved
	}
	r.Ok = len(r.Problems) == 0
	return r
}
