package sink_test

import (
	"context"
	"testing"

	"nicd/framework"
	"nicd/port/sink"
)

// loop is an interface that delivers what is sent to its own port. It has few
// buffers and a short queue, so that senders have to wait.
type loop struct {
	t       *testing.T
	memory  framework.Buffers
	free    []framework.Buffer
	port    *sink.Port
	queue   *framework.Batch
	refused int
}

func newLoop(t *testing.T, p *sink.Port) *loop {
	l := &loop{
		t: t, port: p, queue: framework.NewBatch(4, 4),
		memory: framework.Buffers{Memory: make([]byte, 8*192), Stride: 192, Size: 128, Count: 8},
	}
	for b := range framework.Buffer(8) {
		l.free = append(l.free, b)
	}
	if err := p.Attach(l); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *loop) Name() string                 { return "loop" }
func (l *loop) Settings() framework.Settings { return framework.Settings{MTU: 1500} }
func (l *loop) Queues() int                  { return 1 }
func (l *loop) Buffers() *framework.Buffers  { return &l.memory }

func (l *loop) Alloc(_ int, dst []framework.Buffer) int {
	n := copy(dst, l.free)
	l.free = l.free[n:]
	return n
}

func (l *loop) Send(_ int, b *framework.Batch) int {
	for i := range b.Packets {
		if !l.queue.Room(1) {
			l.refused++
			l.drain()
			l.port.TxReady(0)
			return i
		}
		l.queue.Packets = append(l.queue.Packets, b.Packets[i])
		l.queue.Packets[len(l.queue.Packets)-1].First = uint32(len(l.queue.Frags))
		l.queue.Frags = append(l.queue.Frags, b.Fragments(i)...)
	}
	if len(b.Packets) == 0 {
		l.drain()
		l.port.TxReady(0)
	}
	return len(b.Packets)
}

func (l *loop) drain() {
	l.port.Deliver(0, l.queue)
	l.queue.Reset()
}

func (l *loop) Release(_ int, bufs []framework.Buffer) {
	for _, b := range bufs {
		for _, f := range l.free {
			if f == b {
				l.t.Errorf("buffer %d was given back twice", b)
			}
		}
		l.free = append(l.free, b)
	}
}

// TestRun sends more than fits: everything that was sent arrives, byte for byte
// counted, and no buffer is lost.
func TestRun(t *testing.T) {
	p := &sink.Port{}
	l := newLoop(t, p)
	ctx, cancel := context.WithCancel(t.Context())
	made := uint64(0)
	sent, err := p.Run(ctx, 0, func(to []byte) int {
		if made++; made == 1000 {
			cancel()
		}
		return len(to[:100])
	})
	if err != nil {
		t.Fatal(err)
	}
	l.drain()
	packets, received := p.Received()
	if packets != sent || received != 100*sent || sent == 0 || sent > made {
		t.Errorf("made %d, sent %d, received %d packets of %d bytes", made, sent, packets, received)
	}
	if l.refused == 0 {
		t.Error("the queue was never full: the test tests nothing")
	}
	if len(l.free) != 8 {
		t.Errorf("%d of 8 buffers are back", len(l.free))
	}
}

func TestRunWithoutInterface(t *testing.T) {
	if _, err := new(sink.Port).Run(t.Context(), 0, nil); err == nil {
		t.Error("a port without an interface ran")
	}
}
