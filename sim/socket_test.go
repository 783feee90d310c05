package sim_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"nicd/sim"
)

// socketPair is a pair of connected datagram sockets.
func socketPair(t *testing.T) (a, b *os.File) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	a, b = os.NewFile(uintptr(fds[0]), "a"), os.NewFile(uintptr(fds[1]), "b")
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// TestSocket sends more frames each way than the socket holds: none is lost.
func TestSocket(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	wire := sim.NewWire(sim.WireOptions{})
	defer wire.Close()
	tester := sim.NewTester(wire, sim.Wants{})
	far, near := socketPair(t)
	links := make(chan bool, 2)
	s, err := sim.NewSocket(wire, near, func(up bool) { links <- up })
	if err != nil {
		t.Fatal(err)
	}
	if !<-links {
		t.Error("link is not up at first")
	}
	const frames = 1000
	frame := func(i int) []byte {
		b := bytes.Repeat([]byte{byte(i)}, 60+i)
		binary.BigEndian.PutUint32(b, uint32(i))
		return b
	}
	sent := make(chan error, 1)
	go func() {
		for i := range frames {
			if err := tester.Send(ctx, sim.FrameOf(frame(i))); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	buf := make([]byte, 1<<16)
	for i := range frames {
		n, err := far.Read(buf)
		if err != nil || !bytes.Equal(buf[:n], frame(i)) {
			t.Fatalf("frame %d: %v, %d bytes", i, err, n)
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	go func() {
		for i := range frames {
			if _, err := far.Write(frame(i)); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for i := range frames {
		r, err := tester.Next(ctx)
		if err != nil || !bytes.Equal(r.Bytes, frame(i)) {
			t.Fatalf("frame %d back: %v, %d bytes", i, err, len(r.Bytes))
		}
	}
	wire.SetLink(false)
	if <-links {
		t.Error("link is still up")
	}
	wire.SetLink(true)
	<-links
	s.Close()
	if <-links {
		t.Error("link of an end that is closed")
	}
}

// TestSocketFull: with nobody to pause, frames that have no room are dropped, and
// nobody waits.
func TestSocketFull(t *testing.T) {
	wire := sim.NewWire(sim.WireOptions{NoFlowControl: true})
	defer wire.Close()
	tester := sim.NewTester(wire, sim.Wants{})
	far, near := socketPair(t)
	s, err := sim.NewSocket(wire, near, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const frames = 5000
	for range frames {
		if tester.Port().Send([]sim.Frame{sim.FrameOf(make([]byte, 1000))}) != 1 {
			t.Fatal("a frame was not taken")
		}
	}
	got := 0
	for buf := make([]byte, 2000); ; got++ {
		n, err := syscall.Read(int(far.Fd()), buf)
		if err == syscall.EAGAIN || n < 0 {
			break
		}
	}
	if got == 0 || got == frames {
		t.Errorf("%d frames of %d arrived", got, frames)
	}
}

// TestSocketOfMany has two ends send to the socket at once: a frame is one end's.
func TestSocketOfMany(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	wire := sim.NewWire(sim.WireOptions{})
	defer wire.Close()
	far, near := socketPair(t)
	var senders sync.WaitGroup
	const frames, length = 3000, 1500
	for mark := range byte(2) {
		tester := sim.NewTester(wire, sim.Wants{})
		senders.Go(func() {
			for range frames {
				if err := tester.Send(ctx, sim.FrameOf(bytes.Repeat([]byte{mark}, length))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	s, err := sim.NewSocket(wire, near, nil)
	if err != nil {
		t.Fatal(err)
	}
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		buf := make([]byte, 1<<16)
		for {
			n, err := far.Read(buf)
			if err != nil || n < length {
				return // the end, which is a short one
			}
			if n != length || bytes.Count(buf[:n], buf[:1]) != n {
				t.Errorf("a frame of %d bytes is of both", n)
			}
		}
	}()
	senders.Wait()
	s.Close()
	for {
		if _, err := near.Write([]byte{0}); err == nil {
			break
		}
	}
	<-reading
}
