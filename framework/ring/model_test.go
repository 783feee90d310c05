package ring

import (
	"math/rand/v2"
	"testing"
)

// FuzzTransmit drives a command ring, its completion ring and a flight the way
// a generation-bit driver does, against slices that say what has to come out.
func FuzzTransmit(f *testing.F) {
	for _, n := range []byte{0, 1, 5, 30} {
		seed := make([]byte, 300)
		r := rand.New(rand.NewPCG(1, uint64(n)))
		for i := range seed {
			seed[i] = byte(r.Uint32())
		}
		f.Add(n, seed)
	}
	f.Fuzz(func(t *testing.T, size byte, script []byte) {
		newTransmitModel(t, 2+int(size)%40).run(script)
	})
}

// transmitModel is a driver's transmit queue, a device, and what is expected of
// both: plain slices.
type transmitModel struct {
	t      *testing.T
	cmd    *Command[desc]
	comp   *Completion[desc]
	flight *Flight
	dev    *genDevice[desc]
	done   *genDevice[desc]

	put      []packet // with the device
	finished []packet // reported, not yet handed out
	eop      []uint32 // EOP indices of packets the device has read, not yet reported
	reported int
	seq      uint64
}

type packet struct {
	descs   int
	reports bool
	last    uint32
}

const eopBit, cqBit = 1 << 12, 1 << 13

func newTransmitModel(t *testing.T, n int) *transmitModel {
	cm, dm := heap(n, 16), heap(n, 16)
	owner := Owner{Offset: 12, Bit: 1 << 31}
	return &transmitModel{
		t:      t,
		cmd:    must[*Command[desc]](t)(NewCommand[desc](cm, n, gen14)),
		comp:   must[*Completion[desc]](t)(NewCompletion[desc](dm, n, owner)),
		flight: NewFlight(n),
		dev:    newGenDevice[desc](t, cm, n, gen14),
		done:   newGenDevice[desc](t, dm, n, owner),
	}
}

func (m *transmitModel) run(script []byte) {
	for _, b := range script {
		switch b & 3 {
		case 0, 1:
			m.send(1+int(b>>2)%5, b&0x80 != 0)
		case 2:
			m.device()
		case 3:
			m.reap(int(b >> 2))
		}
		if got, want := m.cmd.Outstanding(), m.outstanding(); got != want {
			m.t.Fatalf("%d descriptors outstanding, want %d", got, want)
		}
	}
}

func (m *transmitModel) outstanding() (n int) {
	for _, p := range m.put {
		n += p.descs
	}
	return n
}

func (m *transmitModel) send(descs int, reports bool) {
	if m.cmd.Space() < descs {
		return
	}
	var last uint32
	for k := range descs {
		d := m.cmd.Next()
		d.Addr, d.Info = m.seq, 0
		m.seq++
		if k == descs-1 {
			d.Info = eopBit
			if reports {
				d.Info |= cqBit
			}
		}
		last = m.cmd.Tail()
		m.cmd.Add(uint32(descs))
		if _, _, ok := m.dev.next(); ok {
			m.t.Fatalf("the device has descriptor %d of %d before Publish", k, descs)
		}
	}
	m.cmd.Publish()
	m.flight.Add(last, descs, reports)
	m.put = append(m.put, packet{descs, reports, last})
	m.read(descs)
}

// read takes one packet as a device does.
func (m *transmitModel) read(descs int) {
	for k := range descs {
		i, d, ok := m.dev.next()
		if !ok {
			m.t.Fatalf("descriptor %d of %d was not published", k, descs)
		}
		if want := m.seq - uint64(descs-k); d.Addr != want || d.Word&0xff != uint32(descs) {
			m.t.Fatalf("the device read %+v, want number %d of a packet of %d", d, want, descs)
		}
		if d.Info&cqBit != 0 {
			m.eop = append(m.eop, i)
		}
	}
}

// device reports the oldest packet that asked for it.
func (m *transmitModel) device() {
	if len(m.eop) == 0 {
		return
	}
	m.done.complete(func(d *desc) { d.Word = m.eop[0] }, 0)
	m.eop = m.eop[1:]
	m.reported++
}

func (m *transmitModel) reap(limit int) {
	for {
		d, ok := m.comp.Take()
		if !ok {
			break
		}
		m.reported--
		descs := m.flight.RetireThrough(m.cmd.Through(d.Word))
		want := 0
		for {
			p := m.put[0]
			m.put = m.put[1:]
			m.finished = append(m.finished, p)
			want += p.descs
			if p.reports {
				break
			}
		}
		if descs != want {
			m.t.Fatalf("retired %d descriptors, want %d", descs, want)
		}
		m.cmd.Release(descs)
	}
	if m.reported != 0 {
		m.t.Fatalf("%d completions not seen", m.reported)
	}
	got, want := m.flight.Completed(limit), min(limit, len(m.finished))
	if got != want {
		m.t.Fatalf("Completed(%d) = %d, want %d", limit, got, want)
	}
	m.finished = m.finished[want:]
}

// FuzzHostileIndices answers a receive ring's completions with any index: no
// buffer may come out that is not outstanding, and none twice.
func FuzzHostileIndices(f *testing.F) {
	f.Add([]byte{0, 1, 2, 200, 255, 3, 3, 3})
	f.Fuzz(func(t *testing.T, script []byte) {
		const n = 16
		r := must[*Command[desc]](t)(NewCommand[desc](heap(n, 16), n, gen14))
		s := NewSlots(n, -1)
		posted := map[int]bool{}
		handle := 0
		for _, b := range script {
			for r.Space() > 0 {
				handle++
				posted[handle] = true
				s.Put(r.Tail(), handle)
				r.Give(1)
			}
			for k := r.Through(uint32(b)); k > 0; k-- {
				h, ok := s.Take(r.Head())
				r.Release(1)
				if !ok || !posted[h] {
					t.Fatalf("index %d: handle %d, posted %v", b, h, posted[h])
				}
				delete(posted, h)
			}
			if len(posted) != r.Outstanding() {
				t.Fatalf("%d buffers posted, %d descriptors outstanding", len(posted), r.Outstanding())
			}
		}
	})
}
