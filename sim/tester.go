package sim

import (
	"context"
	"sync"
)

// Tester is an end in software that tests send and receive with. Its methods may
// be called by any goroutine, Send by one at a time.
type Tester struct {
	// Wanted is what Wants returns; set it before Connect.
	Wanted Wants
	// Limit is how many frames may wait to be read before the tester has no
	// room; zero is no limit.
	Limit int

	port   *Port
	mu     sync.Mutex
	frames []Received
	short  bool
	link   bool
	news   chan struct{}
	resume chan struct{}
}

// Received is a copy of a frame that a Tester got.
type Received struct {
	Bytes []byte
	Frame Frame // Parts is nil
}

// NewTester makes a tester at the end of wire.
func NewTester(wire *Wire, wants Wants) *Tester {
	t := &Tester{Wanted: wants, news: make(chan struct{}, 1), resume: make(chan struct{}, 1)}
	wire.Connect(t)
	return t
}

// Plug implements End.
func (t *Tester) Plug(p *Port) { t.port = p }

// Port is the tester's port.
func (t *Tester) Port() *Port { return t.port }

// Wants implements End.
func (t *Tester) Wants() Wants { return t.Wanted }

// Receive implements End.
func (t *Tester) Receive(frames []Frame, pause bool) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range frames {
		if t.Limit > 0 && len(t.frames) >= t.Limit {
			if pause {
				t.short = true
				return i
			}
			continue
		}
		f := frames[i]
		b := make([]byte, f.Len)
		f.CopyTo(b, 0)
		f.Parts = nil
		t.frames = append(t.frames, Received{b, f})
		notify(t.news)
	}
	return len(frames)
}

// Resume implements End.
func (t *Tester) Resume() { notify(t.resume) }

// SetLink implements End.
func (t *Tester) SetLink(up bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.link = up
}

// Link is the state that SetLink was told.
func (t *Tester) Link() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.link
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Next waits for a frame.
func (t *Tester) Next(ctx context.Context) (Received, error) {
	for {
		if r, ok := t.TryNext(); ok {
			return r, nil
		}
		select {
		case <-t.news:
		case <-ctx.Done():
			return Received{}, ctx.Err()
		}
	}
}

// TryNext returns the next frame if there is one.
func (t *Tester) TryNext() (Received, bool) {
	t.mu.Lock()
	if len(t.frames) == 0 {
		t.mu.Unlock()
		return Received{}, false
	}
	r := t.frames[0]
	t.frames = t.frames[1:]
	room := t.short
	t.short = false
	t.mu.Unlock()
	if room {
		t.port.Room()
	}
	return r, true
}

// Drain forgets the frames that wait to be read and returns how many there were.
func (t *Tester) Drain() (n int) {
	for {
		if _, ok := t.TryNext(); !ok {
			return n
		}
		n++
	}
}

// Send sends frames and waits while the receiver has no room.
func (t *Tester) Send(ctx context.Context, frames ...Frame) error {
	for {
		frames = frames[t.port.Send(frames):]
		if len(frames) == 0 {
			return nil
		}
		select {
		case <-t.resume:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// FrameOf is a plain frame of b.
func FrameOf(b []byte) Frame { return Frame{Parts: [][]byte{b}, Len: len(b)} }
