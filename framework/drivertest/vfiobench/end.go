package vfiobench

import (
	"sync"
	"time"

	"nicd/sim"
)

// end is the end of a virtual wire in the peer's interface: what comes off the wire
// is sent there, and what arrives there by way of the device goes onto the wire.
type end struct {
	peer *Peer
	dev  *netdev // the peer's

	port   *sim.Port
	resume chan struct{}
	done   chan struct{}
	all    sync.WaitGroup
	out    []byte
}

var _ sim.End = (*end)(nil)

// roomAgain is when to try again to send: the kernel does not say when there is room
// for a frame that no queueing discipline takes.
const roomAgain = 100 * time.Microsecond

// connect makes the interface an end of w, until close.
func (e *end) connect(w *sim.Wire) {
	e.resume, e.done, e.out = make(chan struct{}, 1), make(chan struct{}), make([]byte, maxFrame)
	e.dev.resume()
	e.dev.forget(e.out)
	w.Connect(e)
	e.all.Go(e.read)
}

// Plug implements sim.End.
func (e *end) Plug(p *sim.Port) { e.port = p }

// Wants implements sim.End.
func (e *end) Wants() sim.Wants { return sim.Wants{} }

// Resume implements sim.End.
func (e *end) Resume() {
	select {
	case e.resume <- struct{}{}:
	default:
	}
}

// SetLink implements sim.End. The interface stays as it is: the wire comes and goes
// with each station.
func (e *end) SetLink(bool) {}

// Receive implements sim.End.
func (e *end) Receive(frames []sim.Frame, pause bool) int {
	for i := range frames {
		out := e.out[:min(frames[i].Len, maxFrame)]
		frames[i].CopyTo(out, 0)
		e.peer.mark(out)
		if err := e.dev.write(out); err == errNoRoom && pause {
			time.AfterFunc(roomAgain, e.port.Room)
			return i
		}
	}
	return len(frames)
}

func (e *end) read() {
	buf := make([]byte, maxFrame+tagLen)
	frame := make([]sim.Frame, 1)
	for {
		b, err := e.dev.read(buf)
		if err != nil {
			return
		}
		if !fromDevice(b) {
			continue
		}
		frame[0] = sim.FrameOf(b)
		for e.port.Send(frame) == 0 {
			select {
			case <-e.resume:
			case <-e.done:
				return
			}
		}
	}
}

// close ends reading. The interface stays open.
func (e *end) close() {
	close(e.done)
	e.dev.interrupt()
	e.all.Wait()
}
