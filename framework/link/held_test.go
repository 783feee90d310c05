package link

import (
	"encoding/binary"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nicd/framework"
)

// An engine that makes its event blocking, and fills it, holds who signals it. Stop
// lets go of them.
func TestStopFreesWhomAnEngineHolds(t *testing.T) {
	h := newHost(t, small, func(v *Violation) { t.Error(v) })
	if err := h.Start(&port{}); err != nil {
		t.Fatal(err)
	}
	l := newLower(t, h)
	defer l.Close()
	fd := int(h.Events().Engine[0].File().Fd())
	if err := unix.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	bufs := make([]framework.Buffer, 1)
	if h.Alloc(0, bufs) != 1 {
		t.Fatal("no buffer")
	}
	l.ArmTx(0)
	sent := make(chan int)
	r := &rogue{t: t, h: h, l: l}
	full := binary.NativeEndian.AppendUint64(nil, ^uint64(0)-1)
	if _, err := unix.Write(fd, full); err != nil {
		t.Fatal(err)
	}
	go func() { sent <- h.Send(0, r.batch(bufs)) }()
	for h.QueueStats(0).Sent == 0 {
		time.Sleep(time.Millisecond)
	}
	h.Stop()
	if n := <-sent; n != 1 {
		t.Errorf("Send = %d", n)
	}
}

// A port may send what it received, and need no buffers for that: those come back to
// the engine although nobody asks for transmit buffers.
func TestReceivedBuffersAreSentAndComeBack(t *testing.T) {
	h := newHost(t, small, func(v *Violation) { t.Error(v) })
	p := &port{deliver: func(queue int, b *framework.Batch) {
		if n := h.Send(queue, b); n != len(b.Packets) {
			t.Errorf("sent %d of %d", n, len(b.Packets))
		}
	}}
	if err := h.Start(p); err != nil {
		t.Fatal(err)
	}
	l := newLower(t, h)
	defer l.Close()
	rx, tx := make(chan struct{}, 1), make(chan struct{}, 1)
	l.SetWaker(0, poke(rx), poke(tx))
	r := &rogue{t: t, h: h, l: l}
	in := framework.NewBatch(4, 4+framework.MaxFragments)
	for i := range 3 * small.RxBuffers {
		var one [1]framework.Buffer
		for l.Reclaim(0, one[:]) == 0 {
			if !l.ArmRx(0) {
				await(t, rx, "buffer", i)
			}
		}
		if n := l.Deliver(0, r.batch(one[:])); n != 1 {
			t.Fatalf("delivered %d", n)
		}
		for l.Take(0, in); len(in.Packets) == 0; l.Take(0, in) {
			if !l.ArmTx(0) {
				await(t, tx, "packet", i)
			}
		}
		l.Complete(0, []framework.Buffer{in.Frags[0].Buffer})
		in.Reset()
	}
}

func poke(c chan struct{}) func() {
	return func() {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

func await(t *testing.T, c chan struct{}, what string, i int) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(20 * time.Second):
		t.Fatalf("no %s for packet %d", what, i)
	}
}
