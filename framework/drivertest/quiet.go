package drivertest

import (
	"bytes"
	"hash/maphash"
	"time"

	"nicd/framework"
	"nicd/framework/drivertest/rig"
	"nicd/sim"
)

// afterwards is how long something has to have not happened to be taken for
// something that does not happen: there is nothing to wait for.
const afterwards = 10 * time.Millisecond

var hashSeed = maphash.MakeSeed()

// quiet fails if the device, which is stopped or detached, writes to memory or
// interrupts while frames come and the link goes down and up.
func (t *c) quiet(n *rig.Net) {
	before := maphash.Bytes(hashSeed, n.Memory())
	for _, e := range n.Events {
		e.Take()
	}
	for i := range 3 {
		n.Inject(rig.Frame{Seq: uint32(i), Payload: 200}.Build())
	}
	if n.SetLink != nil {
		n.SetLink(false)
		n.SetLink(true)
	}
	n.Inject(rig.Frame{To: framework.MAC{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}, Payload: 60}.Build())
	time.Sleep(afterwards)
	if maphash.Bytes(hashSeed, n.Memory()) != before {
		t.Errorf("the device writes to memory although it should do nothing")
	}
	for v, e := range n.Events {
		if e.Take() > 0 {
			t.Errorf("vector %d fires although the device should do nothing", v)
		}
	}
}

// nothing fails if a frame comes out of the device.
func (t *c) nothing(n *rig.Net, why string) {
	time.Sleep(afterwards)
	if f, ok := n.Peer.TryNext(); ok {
		t.Errorf("the device sends %d bytes %s", len(f.Bytes), why)
	}
}

// drain forgets what the far end has received so far.
func drain(n *rig.Net) {
	for {
		if _, ok := n.Peer.TryNext(); !ok {
			return
		}
	}
}

// forget is drain for a device that is stopped. On a wire that is not the kit's
// nobody says when what it had sent has arrived.
func forget(n *rig.Net) {
	if n.Own != nil {
		time.Sleep(afterwards)
	}
	drain(n)
}

// flushLate forgets what a device that runs had sent before, where that may still be
// under way: it has arrived when the next frame has.
func (t *c) flushLate(n *rig.Net) {
	if n.Own == nil {
		return
	}
	last := out(1<<30, 70)
	n.Send(0, last, 200, framework.Packet{})
	for string(n.Arrives().Bytes) != string(last) {
	}
}

// in builds a frame for the device, out one from it.
func in(seq, payload int) []byte { return rig.Frame{Seq: uint32(seq), Payload: payload}.Build() }

func out(seq, payload int) []byte {
	return rig.Frame{To: rig.Peer, From: rig.MAC, Seq: uint32(seq), Payload: payload}.Build()
}

// shortest is the length below which frames are padded on a wire, without frame
// check sequence.
const shortest = 60

// padded is want as it may arrive: short frames are filled up with zeros.
func padded(got, want []byte) []byte {
	if len(want) < shortest && len(got) == shortest {
		return append(append([]byte(nil), want...), make([]byte, shortest-len(want))...)
	}
	return want
}

// same fails unless a packet arrived whole and good.
func (t *c) same(got rig.Received, want []byte) {
	if got.Error != framework.NoDrop {
		t.Errorf("a frame of %d bytes arrives as a bad one: %v", len(want), got.Error)
		return
	}
	if !bytes.Equal(got.Bytes, padded(got.Bytes, want)) {
		t.Errorf("a frame of %d bytes arrives as %d others: %x, not %x", len(want), len(got.Bytes), head(got.Bytes), head(want))
	}
}

// sent fails unless the next frame at the far end is want.
func (t *c) sent(n *rig.Net, want []byte) {
	if f := n.Arrives(); !bytes.Equal(f.Bytes, want) {
		t.Errorf("a frame of %d bytes is sent as %d others: %x, not %x", len(want), len(f.Bytes), head(f.Bytes), head(want))
	}
}

func head(b []byte) []byte { return b[:min(len(b), 64)] }

// oneQueue is a configuration with one queue pair.
func oneQueue(cfg *framework.Config) {
	cfg.RxQueues, cfg.TxQueues = 1, 1
	if len(cfg.Interrupts.RxVector) > 0 {
		cfg.Interrupts.RxVector, cfg.Interrupts.TxVector = cfg.Interrupts.RxVector[:1], cfg.Interrupts.TxVector[:1]
	}
	clear(cfg.RSS.Indirection[:])
}

// inBackground runs f and returns what to wait for. A check that ends before f
// makes it give up, and waits for it: f uses what is taken away next.
func (t *c) inBackground(f func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	t.Cleanup(func() {
		select {
		case <-done:
		default:
			t.giveUp()
			<-done
		}
	})
	return done
}

// keepTo waits until what was sent is no more than some frames ahead of what has
// arrived, where nobody holds a sender up who is too fast. Any goroutine may call it.
func (t *c) keepTo(n *rig.Net, ahead, sent int, arrived func() int) {
	for !t.can(FlowControl) && sent >= arrived()+ahead && n.Context.Err() == nil {
		time.Sleep(50 * time.Microsecond)
	}
}

// inject sends frames from the far end. It may be called by any goroutine.
func (t *c) inject(n *rig.Net, frames ...[]byte) {
	for _, f := range frames {
		if err := n.Peer.Send(n.Context, sim.FrameOf(f)); err != nil {
			t.Errorf("far end: %v", err)
			return
		}
	}
}
