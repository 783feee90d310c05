package daemon

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"nicd/console"
	"nicd/framework"
	"nicd/framework/engine"
	"nicd/proto/adminpb"
)

// diagnosisTime is how long an interface is looked at: long enough for rates that
// mean something, short enough to wait for.
const diagnosisTime = time.Second

// evidence is what a diagnosis goes by: two pictures of an interface, some time
// apart, and how it runs.
type evidence struct {
	seconds float64
	before  moment
	after   moment

	detail     *adminpb.InterfaceDetail
	plan       engine.Plan
	maxQueues  int            // that the device can receive by
	elsewhere  map[int]string // whose queues poll on a processor, of other interfaces
	processors int            // of the machine
	wire       string         // the simulated wire's name, ""
	delay      time.Duration  // of a frame on it
	limit      uint32         // of the link, Mbit/s; 0 if the device's wire has none
	rates      *adminpb.InterfaceReport

	deviceMerges bool // the device offers LRO
}

// moment is a picture.
type moment struct {
	status  *adminpb.StatusReply
	engine  engine.Snapshot
	others  []*adminpb.Counter // of device, link, port and wire
	cpu     float64            // seconds that nicd and its plugins used
	machine machineTime
}

// machineTime is what a machine's processors did since it started.
type machineTime struct{ busy, idle uint64 }

// diagnose looks at an interface for a while.
func (d *Daemon) diagnose(ctx context.Context, i *netInterface) (*adminpb.Diagnosis, error) {
	e := &evidence{processors: runtime.NumCPU(), elsewhere: d.pollers(i)}
	var err error
	if e.before, err = d.moment(ctx, i); err != nil {
		return nil, err
	}
	began := time.Now()
	select {
	case <-time.After(diagnosisTime):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if e.after, err = d.moment(ctx, i); err != nil {
		return nil, err
	}
	e.seconds = time.Since(began).Seconds()
	e.detail = i.detail()
	i.mu.Lock()
	e.plan, e.maxQueues, e.deviceMerges = i.plan, i.info.MaxRxQueues, i.info.Features&framework.LRO != 0
	i.mu.Unlock()
	if s := i.config.Device.Sim; s != nil {
		e.wire, e.delay = s.Wire, d.wireDelay(s.Wire)
	} else if l := e.detail.Interface.Link; l.GetUp() {
		e.limit = l.Mbps
	}
	e.rates = e.ratesOf(i.config.Name)
	return &adminpb.Diagnosis{Interface: i.config.Name, Seconds: e.seconds, Rates: e.rates, Findings: e.findings()}, nil
}

func (d *Daemon) moment(ctx context.Context, i *netInterface) (m moment, err error) {
	m.status = d.Status()
	m.cpu = totalCPU(m.status)
	m.machine = readMachineTime()
	if m.engine, err = i.counters(); err != nil {
		return m, fmt.Errorf("interface %s: %w", i.config.Name, err)
	}
	s, err := i.stats(ctx)
	if err != nil {
		return m, err
	}
	for _, list := range [][]*adminpb.Counter{s.Hardware, s.Link, s.Port, s.Wire} {
		m.others = append(m.others, list...)
	}
	return m, nil
}

// wireDelay is how long a frame is under way on a simulated wire, on average.
func (d *Daemon) wireDelay(name string) time.Duration {
	for _, w := range d.options.Config.Wires {
		if w.Name == name {
			return w.Delay + w.Jitter/2
		}
	}
	return 0
}

// pollers are the processors that queues of other interfaces poll on for ever.
func (d *Daemon) pollers(not *netInterface) map[int]string {
	found := map[int]string{}
	for _, i := range d.interfaces {
		if i == not {
			continue
		}
		i.mu.Lock()
		for q, cpu := range i.plan.CPUs {
			if q < max(i.plan.RxQueues, i.plan.TxQueues) {
				found[cpu] = fmt.Sprintf("queue %d of %s", q, i.config.Name)
			}
		}
		i.mu.Unlock()
	}
	return found
}

func (e *evidence) ratesOf(name string) *adminpb.InterfaceReport {
	interfaces, _ := console.Rates(e.before.status, e.after.status, e.seconds)
	for _, r := range interfaces {
		if r.Interface.Name == name {
			return r
		}
	}
	return &adminpb.InterfaceReport{Interface: e.detail.Interface}
}

// readMachineTime reads the first line of /proc/stat, proc(5).
func readMachineTime() (t machineTime) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return t
	}
	line, _, _ := bytes.Cut(b, []byte{'\n'})
	for n, field := range strings.Fields(strings.TrimPrefix(string(line), "cpu")) {
		v, _ := strconv.ParseUint(field, 10, 64)
		switch n {
		case 3, 4: // idle and iowait
			t.idle += v
		case 0, 1, 2, 5, 6, 7: // steal too: it is not there for nicd; guests are in the first two
			t.busy += v
		}
	}
	return t
}

func (a *adminServer) Diagnose(ctx context.Context, r *adminpb.InterfaceRequest) (*adminpb.Diagnosis, error) {
	i, err := a.find(r.GetName())
	if err != nil {
		return nil, err
	}
	reply, err := a.daemon.diagnose(ctx, i)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return reply, nil
}

// rx is how much a receive queue counted meanwhile.
func (e *evidence) rx(q int, c engine.RxCounter) uint64 {
	return e.after.engine.Rx[q][c] - e.before.engine.Rx[q][c]
}

// rxAll is rx over all queues.
func (e *evidence) rxAll(c engine.RxCounter) (sum uint64) {
	for q := range e.queues() {
		sum += e.rx(q, c)
	}
	return sum
}

func (e *evidence) queues() int {
	return min(e.plan.RxQueues, len(e.before.engine.Rx), len(e.after.engine.Rx))
}

// perSecond is a number of things a second, for people.
func (e *evidence) perSecond(n uint64) string {
	return fmt.Sprintf("%.0f times a second", float64(n)/e.seconds)
}

func (e *evidence) feature(f framework.Features) *adminpb.Feature {
	for _, s := range e.detail.Features {
		if s.Name == f.String() {
			return s
		}
	}
	return &adminpb.Feature{}
}
