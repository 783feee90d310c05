package link

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"nicd/framework"
)

// rogue is an engine's end that a test writes to by hand.
type rogue struct {
	t      *testing.T
	h      *Host
	l      *Lower
	broken chan *Violation
	got    atomic.Uint64 // packets delivered
}

func newRogue(t *testing.T) *rogue {
	r := &rogue{t: t, broken: make(chan *Violation, 2)}
	r.h = newHost(t, small, func(v *Violation) { r.broken <- v })
	r.l = newLower(t, r.h)
	t.Cleanup(r.l.Close)
	if err := r.h.Start(&port{deliver: func(_ int, b *framework.Batch) { r.got.Add(uint64(len(b.Packets))) }}); err != nil {
		t.Fatal(err)
	}
	return r
}

// buffers takes n receive buffers.
func (r *rogue) buffers(n int) []framework.Buffer {
	r.t.Helper()
	b := make([]framework.Buffer, n)
	if got := r.l.Reclaim(0, b); got != n {
		r.t.Fatalf("%d buffers of %d", got, n)
	}
	return b
}

// batch is a good batch of so many packets of one fragment each.
func (r *rogue) batch(bufs []framework.Buffer) *framework.Batch {
	b := framework.NewBatch(64, 256)
	for i, buf := range bufs {
		b.Packets = append(b.Packets, framework.Packet{First: uint32(i), Frags: 1, Len: 60, Flags: framework.IPv4 | framework.TCP})
		b.Frags = append(b.Frags, framework.Fragment{Buffer: buf, Offset: 2, Len: 60})
	}
	return b
}

func (r *rogue) violation() *Violation {
	r.t.Helper()
	select {
	case v := <-r.broken:
		return v
	case <-time.After(10 * time.Second):
		r.t.Fatal("the violation was not noticed")
		return nil
	}
}

// Each way in which a received packet can be wrong is one named violation; the
// good packets before it are delivered, the ones after it are not.
func TestReceiveViolations(t *testing.T) {
	for _, c := range []struct {
		name string
		rule Rule
		bad  func(r *rogue, b *framework.Batch)
	}{
		{"no fragments", RuleFragmentCount, func(r *rogue, b *framework.Batch) { r.slot(1).fragments = 0 }},
		{"too many fragments", RuleFragmentCount, func(r *rogue, b *framework.Batch) { r.slot(1).fragments = framework.MaxFragments + 1 }},
		{"entries missing", RuleTruncated, func(r *rogue, b *framework.Batch) { r.slot(1).fragments = 40 }},
		{"no such buffer", RuleFragmentBounds, func(r *rogue, b *framework.Batch) { r.slot(1).inline[0].buffer = 1 << 20 }},
		{"outside its buffer", RuleFragmentBounds, func(r *rogue, b *framework.Batch) { r.slot(1).inline[0].offset = uint32(r.h.layout.stride) - 59 }},
		{"offset overflows", RuleFragmentBounds, func(r *rogue, b *framework.Batch) { r.slot(1).inline[0].offset = ^uint32(0) - 10 }},
		{"length overflows", RuleFragmentBounds, func(r *rogue, b *framework.Batch) { r.slot(1).inline[0].length = ^uint32(0) }},
		{"empty fragment", RuleFragmentBounds, func(r *rogue, b *framework.Batch) { r.slot(1).inline[0].length = 0 }},
		{"lengths differ", RuleLength, func(r *rogue, b *framework.Batch) { r.slot(1).length = 61 }},
		{"runt", RuleLength, func(r *rogue, b *framework.Batch) { r.slot(1).length, r.slot(1).inline[0].length = 13, 13 }},
		{"transmit flag", RuleFlags, func(r *rogue, b *framework.Batch) { r.slot(1).flags |= uint32(framework.Segment) }},
		{"unknown flag", RuleFlags, func(r *rogue, b *framework.Batch) { r.slot(1).flags |= 1 << 31 }},
		{"both IPs", RuleFlags, func(r *rogue, b *framework.Batch) { r.slot(1).flags |= uint32(framework.IPv6) }},
		{"merged twice", RuleFlags, func(r *rogue, b *framework.Batch) { r.slot(1).flags |= uint32(bothMerged) }},
		{"error code", RuleMetadata, func(r *rogue, b *framework.Batch) { r.slot(1).err = 1 }},
		{"headers outside", RuleMetadata, func(r *rogue, b *framework.Batch) { r.slot(1).headerLen = 61 }},
		{"checksum outside", RuleMetadata, func(r *rogue, b *framework.Batch) {
			r.slot(1).flags |= uint32(framework.ChecksumPartial)
			r.slot(1).checksumStart, r.slot(1).checksumOffset = 50, 9
		}},
		{"aggregate of nothing", RuleMetadata, func(r *rogue, b *framework.Batch) { r.slot(1).flags |= uint32(framework.SoftwareCoalesced) }},
		{"delivered twice", RuleOwner, func(r *rogue, b *framework.Batch) { r.slot(1).inline[0].buffer = r.slot(0).inline[0].buffer }},
		{"never received", RuleOwner, func(r *rogue, b *framework.Batch) {
			_, tx, _ := r.h.layout.pool(0)
			r.slot(1).inline[0].buffer = uint32(tx.First)
		}},
		{"the engine's own", RuleOwner, func(r *rogue, b *framework.Batch) {
			r.slot(1).inline[0].buffer = uint32(r.h.layout.OwnRange(0).First)
		}},
		{"index too far", RuleIndex, func(r *rogue, b *framework.Batch) { r.l.queues[0].rx.tail += 1000 }},
		{"index goes back", RuleIndex, func(r *rogue, b *framework.Batch) { r.l.queues[0].rx.tail -= 10 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRogue(t)
			b := r.batch(r.buffers(3))
			q := &r.l.queues[0]
			for i := range b.Packets {
				q.rx.write(&b.Packets[i], b.Fragments(i))
			}
			c.bad(r, b)
			if q.rx.publish() {
				q.host.Signal()
			}
			v := r.violation()
			if v.Rule != c.rule || v.Queue != 0 || v.Ring != "rx" || v.Interface != "test0" {
				t.Errorf("violation %v, want %v", v, c.rule)
			}
			r.h.Stop()
			want := uint64(1)
			if c.rule == RuleIndex {
				want = 0
			}
			if n := r.got.Load(); n != want {
				t.Errorf("%d packets were delivered, want %d", n, want)
			}
			if r.h.Violation() != v {
				t.Error("the host forgot")
			}
			census(t, r.h, int(want))
			if err := r.h.Reset(); err != nil {
				t.Fatal(err)
			}
			if r.h.Violation() != nil {
				t.Error("the violation outlived its engine")
			}
			census(t, r.h, int(want))
		})
	}
}

// slot is entry i of the batch in the rx ring.
// What an engine may say of a packet is no violation: of one that software LRO has
// merged, of one that the device has, and of one that nobody has.
func TestHonestFlags(t *testing.T) {
	const any = framework.VLANTag | framework.HashValid
	flags := []framework.PacketFlags{
		any | framework.IPv4 | framework.TCP | framework.SoftwareCoalesced | framework.ChecksumPartial |
			framework.ChecksumVerified | framework.IPIDFixed | framework.CWRCopied,
		any | framework.IPv6 | framework.TCP | framework.Coalesced | framework.ChecksumVerified,
		any | framework.IPv4 | framework.UDP | framework.ChecksumBad,
	}
	r := newRogue(t)
	b := r.batch(r.buffers(len(flags)))
	for i := range b.Packets {
		p := &b.Packets[i]
		p.Flags, p.Segments, p.SegmentSize = flags[i], 2, 3
		p.HeaderLen, p.ChecksumStart, p.ChecksumOffset = 54, 34, 16
	}
	if n := r.l.Deliver(0, b); n != len(flags) {
		t.Fatalf("%d packets were taken", n)
	}
	r.h.Stop()
	if v := r.h.Violation(); v != nil || r.got.Load() != uint64(len(flags)) {
		t.Errorf("%d packets delivered, violation %v", r.got.Load(), v)
	}
}

func (r *rogue) slot(i uint32) *entry { return &r.l.queues[0].rx.slots[i] }

func TestReturnViolations(t *testing.T) {
	for _, c := range []struct {
		name string
		rule Rule
		bad  func(r *rogue)
	}{
		{"no such buffer", RuleBuffer, func(r *rogue) { r.l.queues[0].txReturn.put(framework.NoBuffer) }},
		{"never sent", RuleOwner, func(r *rogue) { r.l.queues[0].txReturn.put(r.h.queues[0].txPool.First) }},
		{"the engine's own", RuleOwner, func(r *rogue) { r.l.queues[0].txReturn.put(r.h.layout.OwnRange(1).First) }},
		{"index too far", RuleIndex, func(r *rogue) { r.l.queues[0].txReturn.tail += 10000 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRogue(t)
			// Somebody must look: a sender that wants more than there is, and is
			// not helped by what the port gives back.
			bufs := make([]framework.Buffer, small.TxBuffers+1)
			bufs = bufs[:r.h.Alloc(0, bufs)]
			c.bad(r)
			q := &r.l.queues[0]
			if q.txReturn.publish() {
				q.host.Signal()
			}
			v := r.violation()
			if v.Rule != c.rule || v.Ring != "tx-return" {
				t.Errorf("violation %v, want %v", v, c.rule)
			}
			r.h.Stop()
			r.h.Release(0, bufs)
			census(t, r.h, 0)
		})
	}
}

// An engine that claims to have consumed what was not sent.
func TestSendViolation(t *testing.T) {
	r := newRogue(t)
	r.l.queues[0].tx.consumer.Store(1000)
	v := func() *Violation {
		for {
			bufs := make([]framework.Buffer, 8)
			n := max(r.h.Alloc(0, bufs), 1) // without a buffer left: a packet for which there is no room
			if r.h.Send(0, r.batch(bufs[:n])) == n {
				continue
			}
			return r.violation()
		}
	}()
	if v.Rule != RuleIndex || v.Ring != "tx" {
		t.Errorf("violation %v", v)
	}
	if n := r.h.Send(0, r.batch(nil)); n != 0 {
		t.Errorf("a broken link took %d packets", n)
	}
}

// One violation is reported, however many queues have one.
func TestViolationIsReportedOnce(t *testing.T) {
	r := newRogue(t)
	for i := range r.l.queues {
		r.l.queues[i].rx.tail += 1000
		r.l.queues[i].rx.publish()
		r.l.queues[i].host.Signal()
	}
	r.violation()
	r.h.Stop()
	select {
	case v := <-r.broken:
		t.Fatalf("reported again: %v", v)
	default:
	}
}

// Garbage from nicd stops the lower end and does not crash it.
func TestLowerFaults(t *testing.T) {
	for _, c := range []struct {
		name string
		bad  func(h *Host, l *Lower)
	}{
		{"index", func(h *Host, l *Lower) { l.queues[0].tx.producer.Store(1 << 30) }},
		{"entry", func(h *Host, l *Lower) { h.queues[0].tx.slots[0].fragments = 9999; l.queues[0].tx.producer.Store(1) }},
		{"return index", func(h *Host, l *Lower) { l.queues[0].rxReturn.producer.Store(1 << 30) }},
		{"return buffer", func(h *Host, l *Lower) { h.queues[0].rxReturn.slots[0] = 1 << 30 }},
		{"rx consumer", func(h *Host, l *Lower) {
			l.queues[0].rx.tail, l.queues[0].rx.head = 64, 0
			l.queues[0].rx.consumer.Store(1 << 30)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t, small, nil)
			var faults []error
			l, err := NewLower(LowerOptions{Memory: h.Memory(), Events: h.Events(), Fault: func(err error) { faults = append(faults, err) }})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			c.bad(h, l)
			b := framework.NewBatch(8, 8+framework.MaxFragments)
			for range 2 {
				l.Take(0, b)
				l.Reclaim(0, make([]framework.Buffer, 64))
				l.Deliver(0, &framework.Batch{
					Packets: []framework.Packet{{Frags: 1, Len: 60}},
					Frags:   []framework.Fragment{{Len: 60}},
				})
			}
			var v *Violation
			if len(faults) != 1 || !errors.As(l.Err(), &v) || faults[0] != l.Err() {
				t.Fatalf("faults %v, Err %v", faults, l.Err())
			}
			if len(b.Packets) != 0 {
				t.Fatalf("took %d packets", len(b.Packets))
			}
		})
	}
}
