package drivertest_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"nicd/bus"
	"nicd/drivers/e1000"
	"nicd/drivers/vmxnet3"
	"nicd/framework"
	"nicd/framework/drivertest"
	"nicd/framework/drivertest/simbench"
)

// These tests are the proof that the checks can fail: a driver that is broken in
// one way, around a real one, has to fail the check that is for it, and the real
// one has to pass.

// broken is a driver with something wrong. A nil function changes nothing.
type broken struct {
	framework.Driver
	describe func(*framework.Description)
	attach   func(real framework.Driver, ctx context.Context, dev bus.Device, env framework.Env) (framework.Device, error)
	device   func(*brokenDevice)
}

func (b *broken) Describe() framework.Description {
	d := b.Driver.Describe()
	if b.describe != nil {
		b.describe(&d)
	}
	return d
}

func (b *broken) Attach(ctx context.Context, dev bus.Device, env framework.Env) (framework.Device, error) {
	attach := b.Driver.Attach
	if b.attach != nil {
		attach = func(ctx context.Context, dev bus.Device, env framework.Env) (framework.Device, error) {
			return b.attach(b.Driver, ctx, dev, env)
		}
	}
	d, err := attach(ctx, dev, env)
	if err != nil {
		return nil, err
	}
	wrapped := &brokenDevice{Device: d, bus: dev, env: env}
	if b.device != nil {
		b.device(wrapped)
	}
	return wrapped, nil
}

// brokenDevice is a device with something wrong.
type brokenDevice struct {
	framework.Device
	bus bus.Device
	env framework.Env

	info       func(*framework.Info)
	start      func(*framework.Config) error
	stop       func() (skip bool)
	link       func(*framework.Link, *error)
	filters    func(*framework.Filters)
	apply      func(*framework.Settings)
	plan       func(framework.Settings)
	cause      func(*framework.Cause)
	maskless   bool
	unmaskless bool
	present    bool // whatever the registers say
	admin      func(*framework.Events)
	counters   func([]uint64)
	rx         func(framework.RxQueue) framework.RxQueue
	tx         func(framework.TxQueue) framework.TxQueue
}

func (d *brokenDevice) Gone() bool { return !d.present && d.Device.Gone() }

func (d *brokenDevice) Info() framework.Info {
	i := d.Device.Info()
	if d.info != nil {
		d.info(&i)
	}
	return i
}

func (d *brokenDevice) Start(cfg framework.Config) (framework.Queues, error) {
	if d.start != nil {
		if err := d.start(&cfg); err != nil {
			return framework.Queues{}, err
		}
	}
	q, err := d.Device.Start(cfg)
	for i := range q.Rx {
		if d.rx != nil {
			q.Rx[i] = d.rx(q.Rx[i])
		}
	}
	for i := range q.Tx {
		if d.tx != nil {
			q.Tx[i] = d.tx(q.Tx[i])
		}
	}
	return q, err
}

func (d *brokenDevice) Stop(ctx context.Context) error {
	if d.stop != nil && d.stop() {
		return nil
	}
	return d.Device.Stop(ctx)
}

func (d *brokenDevice) Link() (framework.Link, error) {
	l, err := d.Device.Link()
	if d.link != nil {
		d.link(&l, &err)
	}
	return l, err
}

func (d *brokenDevice) SetFilters(f framework.Filters) error {
	if d.filters != nil {
		d.filters(&f)
	}
	return d.Device.SetFilters(f)
}

func (d *brokenDevice) Plan(s framework.Settings) (framework.Effect, error) {
	if d.plan != nil {
		d.plan(s)
	}
	return d.Device.Plan(s)
}

func (d *brokenDevice) Apply(s framework.Settings) error {
	if d.apply != nil {
		d.apply(&s)
	}
	return d.Device.Apply(s)
}

func (d *brokenDevice) Interrupt(v int) framework.Cause {
	c := d.Device.Interrupt(v)
	if d.cause != nil {
		d.cause(&c)
	}
	return c
}

func (d *brokenDevice) Mask(v int) {
	if !d.maskless {
		d.Device.Mask(v)
	}
}

func (d *brokenDevice) Unmask(v int) {
	if !d.unmaskless {
		d.Device.Unmask(v)
	}
}

func (d *brokenDevice) Admin() framework.Events {
	e := d.Device.Admin()
	if d.admin != nil {
		d.admin(&e)
	}
	return e
}

func (d *brokenDevice) ReadCounters(dst []uint64) error {
	err := d.Device.ReadCounters(dst)
	if d.counters != nil {
		d.counters(dst)
	}
	return err
}

// brokenRx is a receive queue with something wrong.
type brokenRx struct {
	framework.RxQueue
	poll    func(q framework.RxQueue, dst *framework.Batch) framework.Verdict
	packet  func(*framework.Packet)
	post    func(q framework.RxQueue, bufs []framework.Buffer) int
	bell    func(q framework.RxQueue)
	pending func(q framework.RxQueue) bool
}

func (r *brokenRx) Poll(dst *framework.Batch) framework.Verdict {
	if r.poll != nil {
		return r.poll(r.RxQueue, dst)
	}
	from := len(dst.Packets)
	v := r.RxQueue.Poll(dst)
	for i := from; i < len(dst.Packets) && r.packet != nil; i++ {
		r.packet(&dst.Packets[i])
	}
	return v
}

func (r *brokenRx) Post(bufs []framework.Buffer) int {
	if r.post != nil {
		return r.post(r.RxQueue, bufs)
	}
	return r.RxQueue.Post(bufs)
}

func (r *brokenRx) Bell() {
	if r.bell != nil {
		r.bell(r.RxQueue)
		return
	}
	r.RxQueue.Bell()
}

func (r *brokenRx) Pending() bool {
	if r.pending != nil {
		return r.pending(r.RxQueue)
	}
	return r.RxQueue.Pending()
}

// eachPacket breaks what a queue says of its packets.
func eachPacket(f func(*framework.Packet)) func(*brokenDevice) {
	return func(d *brokenDevice) {
		d.rx = func(q framework.RxQueue) framework.RxQueue { return &brokenRx{RxQueue: q, packet: f} }
	}
}

// brokenTx is a transmit queue with something wrong.
type brokenTx struct {
	framework.TxQueue
	put       func(q framework.TxQueue, b *framework.Batch, from int) int
	bell      func(q framework.TxQueue)
	completed func(q framework.TxQueue, max int) int
	pending   func(q framework.TxQueue) bool
}

func (t *brokenTx) Put(b *framework.Batch, from int) int {
	if t.put != nil {
		return t.put(t.TxQueue, b, from)
	}
	return t.TxQueue.Put(b, from)
}

func (t *brokenTx) Bell() {
	if t.bell != nil {
		t.bell(t.TxQueue)
		return
	}
	t.TxQueue.Bell()
}

func (t *brokenTx) Completed(max int) int {
	if t.completed != nil {
		return t.completed(t.TxQueue, max)
	}
	return t.TxQueue.Completed(max)
}

func (t *brokenTx) Pending() bool {
	if t.pending != nil {
		return t.pending(t.TxQueue)
	}
	return t.TxQueue.Pending()
}

// eachPut changes packets before they are sent.
func eachPut(f func(*framework.Packet)) func(*brokenDevice) {
	return func(d *brokenDevice) {
		d.tx = func(q framework.TxQueue) framework.TxQueue {
			return &brokenTx{TxQueue: q, put: func(q framework.TxQueue, b *framework.Batch, from int) int {
				for i := from; i < len(b.Packets); i++ {
					f(&b.Packets[i])
				}
				return q.Put(b, from)
			}}
		}
	}
}

func txQueue(t brokenTx) func(*brokenDevice) {
	return func(d *brokenDevice) {
		d.tx = func(q framework.TxQueue) framework.TxQueue {
			t := t
			t.TxQueue = q
			return &t
		}
	}
}

func rxQueue(r brokenRx) func(*brokenDevice) {
	return func(d *brokenDevice) {
		d.rx = func(q framework.RxQueue) framework.RxQueue {
			r := r
			r.RxQueue = q
			return &r
		}
	}
}

// mistakes are ways to be broken, each with the check that has to find it.
var mistakes = []struct {
	name, check, model string
	broken
}{
	{"a quirk without a reference", "attach.description", "82574L", broken{describe: func(d *framework.Description) {
		d.Quirks = append(d.Quirks, framework.MinFrameQuirk.Is(60, framework.Match{}, ""))
	}}},
	{"a ring rule that its default breaks", "attach.info", "82574L", broken{device: func(d *brokenDevice) {
		d.info = func(i *framework.Info) { i.RxRing.Default = i.RxRing.Max + 1 }
	}}},
	{"attach ignores bus errors", "attach.bus-error", "vmxnet3-4", broken{attach: func(real framework.Driver, ctx context.Context, dev bus.Device, env framework.Env) (framework.Device, error) {
		for {
			if d, err := real.Attach(ctx, dev, env); err == nil || errors.Is(err, bus.ErrGone) {
				return d, err
			}
		}
	}}},
	{"stop leaves the device running", "stop.quiet", "82574L", broken{device: func(d *brokenDevice) {
		d.stop = func() bool { return true }
	}}},
	{"stop fails the second time", "stop.twice", "vmxnet3-4", broken{device: func(d *brokenDevice) {
		d.stop = func() bool { panic("stopped twice") }
	}}},
	{"unmasked by start", "start.masked", "vmxnet3-4", broken{device: func(d *brokenDevice) {
		d.rx = func(q framework.RxQueue) framework.RxQueue {
			return &brokenRx{RxQueue: q, post: func(q framework.RxQueue, bufs []framework.Buffer) int {
				d.Device.Unmask(0)
				return q.Post(bufs)
			}}
		}
	}}},
	{"one buffer too many in the ring", "receive.post-limit", "82574L", broken{device: rxQueue(brokenRx{
		post: func(q framework.RxQueue, bufs []framework.Buffer) int { return min(q.Post(bufs)+1, len(bufs)) },
	})}},
	{"buffers larger than they are", "receive.buffer-size", "82574L", broken{device: func(d *brokenDevice) {
		d.start = func(c *framework.Config) error {
			b := *c.Buffers
			b.Size = max(b.Size, 2048)
			c.Buffers = &b
			return nil
		}
	}}},
	{"pending that polls", "receive.pending", "82574L", broken{device: func(d *brokenDevice) {
		d.rx = func(q framework.RxQueue) framework.RxQueue {
			return &brokenRx{RxQueue: q, pending: func(q framework.RxQueue) bool {
				b := framework.NewBatch(1, framework.MaxFragments)
				q.Poll(b)
				return len(b.Packets) > 0
			}}
		}
	}}},
	{"the last byte of long packets is missing", "jumbo.edges", "82574L", broken{device: func(d *brokenDevice) {
		d.rx = func(q framework.RxQueue) framework.RxQueue {
			return &brokenRx{RxQueue: q, poll: func(q framework.RxQueue, dst *framework.Batch) framework.Verdict {
				v := q.Poll(dst)
				for i := range dst.Packets {
					if p := &dst.Packets[i]; p.Frags > 1 {
						p.Len--
						dst.Frags[p.First+uint32(p.Frags)-1].Len--
					}
				}
				return v
			}}
		}
	}}},
	{"buffers that did not fit are lost when a ring runs dry", "starve.paused", "82574L", broken{device: func(d *brokenDevice) {
		d.rx = func(q framework.RxQueue) framework.RxQueue {
			first := true
			return &brokenRx{RxQueue: q, bell: func(q framework.RxQueue) {
				if first { // and never again
					first = false
					q.Bell()
				}
			}}
		}
	}}},
	{"bells after the first refill are forgotten", "starve.port", "82540EM", broken{device: func(d *brokenDevice) {
		d.rx = func(q framework.RxQueue) framework.RxQueue {
			first := true
			return &brokenRx{RxQueue: q, bell: func(q framework.RxQueue) {
				if first {
					first = false
					q.Bell()
				}
			}}
		}
	}}},
	{"the bell is forgotten", "transmit.wrap", "vmxnet3-4", broken{device: txQueue(brokenTx{bell: func(framework.TxQueue) {}})}},
	{"put rings", "transmit.full", "82574L", broken{device: txQueue(brokenTx{put: func(q framework.TxQueue, b *framework.Batch, from int) int {
		n := q.Put(b, from)
		q.Bell()
		return n
	}})}},
	{"more completions than asked for", "transmit.completed", "82574L", broken{device: txQueue(brokenTx{completed: func(q framework.TxQueue, max int) int {
		return q.Completed(64)
	}})}},
	{"packets that ask for no completion are never finished", "transmit.reports", "82574L", broken{device: func(d *brokenDevice) {
		d.tx = func(q framework.TxQueue) framework.TxQueue {
			return &brokenTx{TxQueue: q, completed: func(q framework.TxQueue, max int) int {
				return min(q.Completed(max), 1)
			}}
		}
	}}},
	{"put allocates", "transmit.allocates-nothing", "82574L", broken{device: txQueue(brokenTx{put: func(q framework.TxQueue, b *framework.Batch, from int) int {
		sink = make([]byte, 64)
		return q.Put(b, from)
	}})}},
	{"poll allocates", "receive.allocates-nothing", "82574L", broken{device: rxQueue(brokenRx{poll: func(q framework.RxQueue, b *framework.Batch) framework.Verdict {
		sink = make([]byte, 64)
		return q.Poll(b)
	}})}},
	{"TSO of another segment size", "tso.ipv4", "82574L", broken{device: eachPut(func(p *framework.Packet) {
		if p.Flags&framework.Segment != 0 {
			p.SegmentSize--
		}
	})}},
	{"every checksum is good", "checksum.bad", "vmxnet3-4", broken{device: eachPacket(func(p *framework.Packet) {
		p.Flags = p.Flags&^framework.ChecksumBad | framework.ChecksumVerified
	})}},
	{"no checksum is good", "checksum.good", "vmxnet3-4", broken{device: eachPacket(func(p *framework.Packet) {
		p.Flags &^= framework.ChecksumVerified
	})}},
	{"fragments are verified", "checksum.unknown", "vmxnet3-4", broken{device: eachPacket(func(p *framework.Packet) {
		p.Flags |= framework.ChecksumVerified
	})}},
	{"verdicts stay on", "checksum.off", "82574L", broken{device: func(d *brokenDevice) {
		d.apply = func(s *framework.Settings) { s.Features |= framework.RxChecksum }
	}}},
	{"the checksum goes elsewhere", "checksum.fill", "82574L", broken{device: eachPut(func(p *framework.Packet) {
		p.ChecksumOffset += 2
	})}},
	{"tags lose their priority", "vlan.strip", "82574L", broken{device: eachPacket(func(p *framework.Packet) { p.VLAN &= 0xFFF })}},
	{"VLAN filters are forgotten", "vlan.filter", "82574L", broken{device: func(d *brokenDevice) {
		d.filters = func(f *framework.Filters) { f.VLANs = nil }
	}}},
	{"the last group is forgotten", "filter.multicast", "vmxnet3-4", broken{device: func(d *brokenDevice) {
		d.filters = func(f *framework.Filters) {
			if n := len(f.Multicast); n > 1 {
				f.Multicast = f.Multicast[:n-1]
			}
		}
	}}},
	{"promiscuity stays", "filter.promiscuous", "82574L", broken{device: func(d *brokenDevice) {
		stays := false
		d.filters = func(f *framework.Filters) {
			stays = stays || f.Promiscuous
			f.Promiscuous = stays
		}
	}}},
	{"more room is promised than there is", "filter.unicast", "82574L", broken{device: func(d *brokenDevice) {
		d.info = func(i *framework.Info) { i.MaxUnicast += 10 }
	}}},
	{"promiscuity does nothing", "filter.overflow", "82574L", broken{device: func(d *brokenDevice) {
		d.filters = func(f *framework.Filters) { f.Promiscuous = false }
	}}},
	{"hashes of another key", "rss.toeplitz", "vmxnet3-4", broken{device: eachPacket(func(p *framework.Packet) { p.Hash ^= 1 << 20 })}},
	{"the table is not followed", "rss.table", "82574L", broken{device: func(d *brokenDevice) {
		was := framework.RSS{}
		d.start = func(cfg *framework.Config) error { was = cfg.RSS; return nil }
		d.apply = func(s *framework.Settings) { s.RSS = was }
	}}},
	{"masks do nothing", "interrupt.masked", "vmxnet3-4", broken{device: func(d *brokenDevice) {
		d.cause = func(*framework.Cause) { d.Device.Unmask(0) }
		d.maskless = true
	}}},
	{"unmask does nothing", "interrupt.receive", "82574L", broken{device: func(d *brokenDevice) { d.unmaskless = true }}},
	{"an interrupt names no queue", "interrupt.engine", "82574L", broken{device: func(d *brokenDevice) {
		d.cause = func(c *framework.Cause) { c.Rx, c.Tx = 0, 0 }
	}}},
	{"every interrupt is one's own", "interrupt.foreign", "82540EM", broken{device: func(d *brokenDevice) {
		d.cause = func(c *framework.Cause) { c.Rx |= 1 }
	}}},
	{"link changes are kept secret", "link.flap", "82574L", broken{device: func(d *brokenDevice) {
		d.admin = func(e *framework.Events) { e.LinkChanged = false }
	}}},
	{"the link is always up", "link.down-at-start", "82574L", broken{device: func(d *brokenDevice) {
		d.link = func(l *framework.Link, _ *error) { l.Up = true }
	}}},
	{"a queue that hangs is said to be done", "hang.restart", "82574L", broken{device: txQueue(brokenTx{completed: func(framework.TxQueue, int) int { return 1 }})}},
	{"a device that is gone is not noticed", "gone.control", "82574L", broken{device: func(d *brokenDevice) {
		d.present = true
	}}},
	{"all ones are taken for packets", "gone.data", "82574L", broken{device: func(d *brokenDevice) {
		d.tx = func(q framework.TxQueue) framework.TxQueue {
			return &brokenTx{TxQueue: q, completed: func(q framework.TxQueue, max int) int {
				if d.Device.Gone() {
					return 1
				}
				return q.Completed(max)
			}}
		}
	}}},
	{"a bad frame spoils its batch", "bad.lengths", "82574L", broken{device: func(d *brokenDevice) {
		d.rx = func(q framework.RxQueue) framework.RxQueue {
			spoilt := false
			return &brokenRx{RxQueue: q, packet: func(p *framework.Packet) {
				if spoilt {
					spoilt = false
					p.Error = framework.DropDevice
				} else if p.Error != framework.NoDrop {
					spoilt = true
				}
			}}
		}
	}}},
	{"merged packets are not marked", "lro.sized", "vmxnet3-4", broken{device: eachPacket(func(p *framework.Packet) { p.Flags &^= framework.Coalesced })}},
	{"long packets are not known to be merged", "lro.length-only", "vmxnet3-4", broken{device: eachPacket(func(p *framework.Packet) { p.Flags &^= framework.Coalesced })}},
	{"merging goes on", "lro.toggle", "vmxnet3-4", broken{device: func(d *brokenDevice) {
		d.apply = func(s *framework.Settings) { s.Features |= framework.LRO }
	}}},
	{"plan applies", "toggle.plan", "82574L", broken{device: func(d *brokenDevice) {
		d.plan = func(s framework.Settings) { _ = d.Device.Apply(s) }
	}}},
	{"an empty buffer is a fragment", "slot.empty-inside", "vmxnet3-4", broken{device: func(d *brokenDevice) {
		d.rx = func(q framework.RxQueue) framework.RxQueue {
			return &brokenRx{RxQueue: q, packet: func(p *framework.Packet) {
				if p.Frags > 1 {
					p.Error = framework.DropDevice
				}
			}}
		}
	}}},
	{"skipped buffers are lost", "slot.skipped", "vmxnet3-4", broken{device: func(d *brokenDevice) {
		d.rx = func(q framework.RxQueue) framework.RxQueue {
			posts := 0
			return &brokenRx{RxQueue: q, post: func(q framework.RxQueue, bufs []framework.Buffer) int {
				if posts++; posts > 1 && len(bufs) > 1 {
					return max(q.Post(bufs)-1, 0)
				}
				return q.Post(bufs)
			}}
		}
	}}},
	{"counters go back", "counter.reading", "82574L", broken{device: func(d *brokenDevice) {
		n := uint64(1000)
		d.counters = func(dst []uint64) { n--; dst[0] = n }
	}}},
	{"nothing counts", "counter.exact", "82574L", broken{device: func(d *brokenDevice) { d.counters = func(dst []uint64) { clear(dst) } }}},
	{"declared to merge, and does not", "quirk.lro-owner", "vmxnet3-4", broken{device: eachPacket(func(p *framework.Packet) { p.Flags &^= framework.Coalesced }),
		describe: func(d *framework.Description) {
			d.Quirks = append(d.Quirks, framework.LROOwnerQuirk.Is(framework.LROSoftware, framework.Match{}, "not true"))
		}}},
	{"declared to keep the order of slots", "quirk.skips-rx-slots", "vmxnet3-4", broken{describe: func(d *framework.Description) {
		d.Quirks = append(d.Quirks, framework.SkipsRxSlotsQuirk.Is(false, framework.Match{}, "not true"))
	}}},
	{"declared to ring on request, and rings", "quirk.rx-bell", "82574L", broken{describe: func(d *framework.Description) {
		d.Quirks = append(d.Quirks, framework.RxBellQuirk.Is(framework.RxBellOnRequest, framework.Match{}, "not true"))
	}}},
	{"declared not to interrupt, and does", "quirk.tx-interrupt", "82574L", broken{describe: func(d *framework.Description) {
		d.Quirks = append(d.Quirks, framework.TxInterruptQuirk.Is(false, framework.Match{}, "not true"))
	}}},
	{"declared to reset by the bus, and does not", "quirk.reset-method", "vmxnet3-4", broken{describe: func(d *framework.Description) {
		d.Quirks = append(d.Quirks, framework.ResetMethodQuirk.Is(framework.ResetByBus, framework.Match{}, "not true"))
	}}},
}

var sink []byte

func driverOf(model string) framework.Driver {
	if strings.HasPrefix(model, "vmxnet3") {
		return vmxnet3.New()
	}
	return e1000.New()
}

// tries is how often a broken driver is checked before its mistake counts as not
// found.
const tries = 10

// TestMistakesAreFound runs one check on each broken driver.
func TestMistakesAreFound(t *testing.T) {
	categories := map[string]bool{}
	for _, m := range mistakes {
		category, _, _ := strings.Cut(m.check, ".")
		categories[category] = true
		t.Run(m.check+" "+m.name, func(t *testing.T) {
			m.Driver = driverOf(m.model)
			b, err := simbench.New(&m.broken, m.model, simbench.Options{})
			if err != nil {
				t.Fatal(err)
			}
			b.Quick = true
			b.Patience = patience
			b.Select = func(name string) bool { return name == m.check }
			// Some mistakes show by chance only, when a task happens to sleep: a
			// quick run may miss them, a few in a row may not.
			var r drivertest.Report
			for range tries {
				r = drivertest.Check(t.Context(), b)
				if len(r.Checks) == 1 && r.Checks[0].Status == drivertest.Failed {
					break
				}
			}
			if len(r.Checks) != 1 || r.Checks[0].Status != drivertest.Failed {
				t.Fatalf("not found: %+v", r.Checks)
			}
			t.Log(r.Checks[0].Problems[0])
		})
	}
	for _, k := range drivertest.Describe() {
		category, _, _ := strings.Cut(k.Name, ".")
		if !categories[category] && !indirect[category] {
			t.Errorf("nothing is broken in category %s", category)
		}
	}
}

// indirect are categories whose checks another category's mistakes stand for.
var indirect = map[string]bool{
	"detach": true, "restart": true, // stop's
	"runt": true, // jumbo's
}

// TestCheckThatDoesNotEnd: where a driver does not return is in the report.
func TestCheckThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	d := drivertest.NewStuck(e1000.New())
	defer d.Leave()
	d.Stick()
	b, err := simbench.New(d, "82574L", simbench.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b.Patience = patience
	b.Select = func(name string) bool { return name == "start.rings" }
	r := drivertest.Check(t.Context(), b)
	if k := r.Checks[0]; k.Status != drivertest.Failed || !strings.Contains(strings.Join(k.Log, "\n"), "stuckDevice.Stop") {
		t.Errorf("%+v", k)
	}
}
