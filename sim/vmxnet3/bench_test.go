package vmxnet3

import (
	"encoding/binary"
	"testing"

	"nicd/bus"
)

// BenchmarkTxWireRx is a frame's way from one driver's memory to another's: the
// descriptors are written and taken by the least that a driver has to do.
func BenchmarkTxWireRx(b *testing.B) {
	for _, c := range []struct {
		name     string
		size     int
		features uint32
	}{
		{"64B", 64, bitRxCsum},
		{"1514B", 1514, bitRxCsum},
		{"64KiB/lro", 65226, lroFeatures},
		{"64KiB/segmented", 65226, bitRxCsum},
	} {
		b.Run(c.name, func(b *testing.B) { benchTxRx(b, c.size, c.features) })
	}
}

func benchTxRx(b *testing.B, size int, features uint32) {
	s := setup{features: features, ring: 512, bufSize: 2048}
	d, e := newPair(b, s, s)
	f := tcpFrame(size - 54)
	f.dst = e.m.opt.MAC
	x := newBenchTx(d, f, size > 1514)
	r := newBenchRx(e)
	batch := 32
	if size > 1514 {
		batch = 1
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for n := 0; n < b.N; {
		k := min(batch, b.N-n)
		for range k {
			x.put()
		}
		x.bell()
		for want := r.bytes + k*size; r.bytes < want; {
			d.m.Work(64)
			before := r.bytes
			r.poll()
			if r.bytes == before && d.m.tx.blocked == nil {
				b.Fatalf("lost: %d of %d bytes", r.bytes, want)
			}
			e.m.Work(64)
		}
		n += k
	}
}

type benchTx struct {
	d     *tdriver
	lens  []int
	words [][2]uint32
	next  int
	gen   uint32
}

func newBenchTx(d *tdriver, f tframe, tso bool) *benchTx {
	f.tso = tso
	bytes := f.bytes()
	x := &benchTx{d: d, gen: 1, lens: []int{len(bytes)}}
	copy(d.at(d.tx[0].buf, len(bytes)), bytes)
	om := uint32(0)
	if tso {
		om = 3
		x.lens = []int{54}
		for left := len(bytes) - 54; left > 0; left -= 16384 {
			x.lens = append(x.lens, min(left, 16384))
		}
	}
	for i, n := range x.lens {
		w3 := om<<10 | 54
		if i == len(x.lens)-1 {
			w3 |= 3 << 12
		}
		x.words = append(x.words, [2]uint32{uint32(n&0x3fff) | 1460<<18, w3})
	}
	if !tso {
		x.words[0][0] = uint32(len(bytes))
	}
	return x
}

func (x *benchTx) put() {
	mem, t := x.d.mem.Bytes(), x.d.tx[0]
	at := t.buf
	for i, w := range x.words {
		o := int(t.ring-testIOVA) + x.next*16
		binary.LittleEndian.PutUint64(mem[o:], at)
		binary.LittleEndian.PutUint32(mem[o+12:], w[1])
		bus.Word(mem, o+8).Store(w[0] | x.gen<<14)
		at += uint64(x.lens[i])
		if x.next++; x.next == t.size {
			x.next, x.gen = 0, x.gen^1
		}
	}
}

func (x *benchTx) bell() { x.d.pt.Write32(regTXPROD, uint32(x.next)) }

type benchRx struct {
	r     *trx
	d     *tdriver
	bytes int
}

func newBenchRx(d *tdriver) *benchRx { return &benchRx{r: d.rx[0], d: d} }

// poll takes all completions and posts their descriptors again. Bytes are counted
// as they were sent: headers of further segments are left out.
func (x *benchRx) poll() {
	mem, r := x.d.mem.Bytes(), x.r
	for {
		at := int(r.comp-testIOVA) + r.compNext*16
		w3 := bus.Word(mem, at+12).Load()
		if w3>>31 != r.compGen {
			return
		}
		w0 := binary.LittleEndian.Uint32(mem[at:])
		n := int(binary.LittleEndian.Uint32(mem[at+8:]) & 0x3fff)
		if r.compNext++; r.compNext == r.compSize {
			r.compNext, r.compGen = 0, r.compGen^1
		}
		k := int(w0 >> 16 & 1)
		if w0&(1<<15) != 0 {
			b := mem[int(r.bufs[k]-testIOVA)+int(w0&0xfff)*(x.d.s.bufSize+64):]
			if binary.BigEndian.Uint32(b[38:]) != 5000 {
				n -= 54 // a further segment
			}
		}
		x.bytes += n
		r.post(k)
	}
}
