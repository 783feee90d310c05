package link

import (
	"encoding/binary"
	"testing"
	"unsafe"

	"nicd/bus"
	"nicd/framework"
)

// suspicious is a port that checks what it is given against its own record.
type suspicious struct {
	t    *testing.T
	h    *Host
	held map[framework.Buffer]bool
}

func (p *suspicious) TxReady(int) {}

func (p *suspicious) Deliver(_ int, b *framework.Batch) {
	for i := range b.Packets {
		k := &b.Packets[i]
		if rule, _ := checkReceived(k); rule != ruleKept {
			p.t.Errorf("delivered %+v", *k)
		}
		var sum uint32
		for _, f := range b.Fragments(i) {
			_ = p.h.Buffers().Bytes(f)[f.Len-1]
			if p.held[f.Buffer] {
				p.t.Errorf("buffer %d delivered twice", f.Buffer)
			}
			p.held[f.Buffer] = true
			sum += f.Len
		}
		if sum != k.Len || k.Frags == 0 {
			p.t.Errorf("delivered %d bytes in %d fragments, said %d", sum, k.Frags, k.Len)
		}
	}
}

// FuzzHost lets an engine write anything anywhere in the arena, in between what
// host and port do. Whatever happens is a violation or is valid; the port's
// record of its buffers and the host's never differ.
func FuzzHost(f *testing.F) {
	good := entry{length: 60, fragments: 1, inline: [3]fragment{{buffer: 3, offset: 2, length: 60}}}
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&good)), entrySize)
	f.Add(append([]byte{0, 0, 0}, raw...), uint32(1))
	f.Add(append([]byte{0, 0, 0}, append(raw, raw...)...), uint32(2))
	f.Add([]byte{2, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}, uint32(1<<31))
	f.Add([]byte{4, 4, 4, 1, 0, 0, 0, 0, 3, 3, 3, 2}, uint32(7))
	l, err := small.Layout()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, script []byte, step uint32) {
		h, err := NewHost(HostOptions{Name: "fuzz0", Memory: bus.HeapMemory(l.Size()), Layout: small})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		h.state.Store(hostRunning) // receivers are played by the script
		p := &suspicious{t: t, h: h, held: make(map[framework.Buffer]bool)}
		for len(script) > 0 && h.Violation() == nil {
			script = p.play(script, step)
		}
		h.state.Store(hostStopped)
		if err := h.Reset(); err != nil {
			t.Fatal(err)
		}
		census(t, h, len(p.held))
		for b := range p.held {
			if h.owners.of(b) != ownerPort {
				t.Errorf("the port's buffer %d is %d's", b, h.owners.of(b))
			}
		}
	})
}

// play does what the script's first byte says and returns the rest.
func (p *suspicious) play(script []byte, step uint32) []byte {
	op, script := script[0], script[1:]
	q := &p.h.queues[op>>4&1]
	switch op & 7 {
	case 0, 1, 2: // the engine writes to a ring
		kind := []ringKind{ringRx, ringTxReturn, ringTx}[op&7]
		ring := p.h.Memory().Bytes()[ringAt(p.h, q.index, kind):]
		n := min(len(script), int(step%1024)+1, p.h.layout.ringSize(kind)-ringControlSize)
		copy(ring[ringControlSize:], script[:n])
		producer := bus.Word(ring, offProducer)
		producer.Store(producer.Load() + step%70)
		return script[n:]
	case 3: // to any word of any control line
		if len(script) < 5 {
			return nil
		}
		at := int(script[0]) % 4 * 128
		bus.Word(p.h.Memory().Bytes()[ringAt(p.h, q.index, ringKind(script[0]>>2&3)):], at).Store(binary.LittleEndian.Uint32(script[1:]))
		return script[5:]
	case 4:
		if _, v := q.deliver(p); v != nil {
			p.h.broken(v)
		}
	case 5:
		p.send(q)
	case 6:
		for b := range p.held {
			delete(p.held, b)
			p.h.Release(q.index, []framework.Buffer{b})
			break
		}
	case 7:
		if _, v := q.retry(); v != nil {
			p.h.broken(v)
		}
	}
	return script
}

func ringAt(h *Host, queue int, kind ringKind) int { return h.layout.ringOffset(queue, kind) }

// send sends two buffers if it gets them.
func (p *suspicious) send(q *hostQueue) {
	var bufs [2]framework.Buffer
	b := framework.NewBatch(2, 2)
	for _, buf := range bufs[:p.h.Alloc(q.index, bufs[:])] {
		if p.held[buf] {
			p.t.Errorf("buffer %d allocated while the port has it", buf)
		}
		p.held[buf] = true
		b.Packets = append(b.Packets, framework.Packet{First: uint32(len(b.Frags)), Frags: 1, Len: 60})
		b.Frags = append(b.Frags, framework.Fragment{Buffer: buf, Len: 60})
	}
	for _, f := range b.Frags[:p.h.Send(q.index, b)] {
		delete(p.held, f.Buffer)
	}
}

// FuzzDecode: any entries are a packet within bounds or a broken rule.
func FuzzDecode(f *testing.F) {
	f.Add(make([]byte, entrySize), uint32(1))
	l, err := small.Layout()
	if err != nil {
		f.Fatal(err)
	}
	arena := bus.HeapMemory(l.Size())
	bufs := l.Buffers(arena, 0)
	b := framework.NewBatch(2, framework.MaxFragments)
	f.Fuzz(func(t *testing.T, raw []byte, published uint32) {
		e := make([]entry, max(1, min(len(raw)/entrySize, copyAhead)))
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&e[0])), len(e)*entrySize), raw)
		b.Reset()
		used, rule := decode(e, max(published, 1), b, bufs)
		switch {
		case rule != ruleKept && (used != 0 || len(b.Packets) != 0 || len(b.Frags) != 0):
			t.Fatalf("rule %v broken, but %d entries used", rule, used)
		case used > 0 && len(b.Packets) != 1:
			t.Fatalf("%d entries used for nothing", used)
		case used > 0:
			for _, f := range b.Fragments(0) {
				_ = bufs.Bytes(f)
			}
		}
	})
}
