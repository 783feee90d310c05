package framework

import (
	"slices"
	"testing"
)

func TestAssembly(t *testing.T) {
	dst := NewBatch(4, MaxFragments)
	var a Assembly
	a.begin()
	a.Deliver(dst)
	if len(dst.Packets) != 0 || a.Open() {
		t.Fatal("an empty packet was delivered")
	}
	a.begin()
	a.add(7, 100)
	a.add(3, 20)
	a.Packet.Hash = 9
	a.Deliver(dst)
	a.begin()
	a.add(5, 1)
	a.Fail(DropCRC)
	a.Fail(DropDevice)
	a.Deliver(dst)
	if p := dst.Packets[0]; p.Len != 120 || p.Frags != 2 || p.Hash != 9 || p.Error != NoDrop {
		t.Errorf("packet %+v", p)
	}
	if f := dst.Fragments(0); f[0] != (Fragment{7, RxOffset, 100}) || f[1] != (Fragment{3, RxOffset, 20}) {
		t.Errorf("fragments %+v", f)
	}
	if p := dst.Packets[1]; p.Error != DropCRC || p.Hash != 0 || dst.Fragments(1)[0].Buffer != 5 {
		t.Errorf("packet %+v", p)
	}
}

func TestAssemblyRefusesEndlessChains(t *testing.T) {
	dst := NewBatch(1, MaxFragments)
	var a Assembly
	a.begin()
	for i := range MaxFragments {
		if !a.Room(dst) || !a.add(Buffer(i), 1) {
			t.Fatalf("fragment %d refused", i)
		}
	}
	if !a.Room(dst) {
		t.Error("no room to find out that the chain is too long")
	}
	if a.add(99, 1) {
		t.Error("one fragment too many taken")
	}
	a.Deliver(dst)
	if p := dst.Packets[0]; p.Error != DropTooLong || p.Frags != MaxFragments || p.Len != MaxFragments {
		t.Errorf("packet %+v", p)
	}
	a.begin()
	if a.Room(dst) {
		t.Error("room in a full batch")
	}
}

func TestAssemblyAppend(t *testing.T) {
	dst := NewBatch(4, MaxFragments)
	var a Assembly
	if !a.Append(1, 100, 100) || !a.Append(2, 101, 100) || a.Append(3, 0, 100) {
		t.Error("a buffer with something in it is the packet's, an empty one is not")
	}
	a.Deliver(dst)
	if p := dst.Packets[0]; p.Len != 200 || p.Frags != 2 || p.Error != DropDevice {
		t.Errorf("packet %+v", p)
	}
	if a.Append(1, 0, 100) || !a.Open() {
		t.Error("an empty first buffer begins a packet")
	}
	a.Deliver(dst)
	if len(dst.Packets) != 1 {
		t.Error("an empty packet was delivered")
	}
	for range MaxFragments {
		a.Append(1, 1, 100)
	}
	if a.Append(1, 1, 100) || a.Packet.Error != DropTooLong {
		t.Errorf("one fragment too many taken, error %v", a.Packet.Error)
	}
}

func TestAssemblyCoalesce(t *testing.T) {
	const header, longest = 54, 1514
	buffers := &Buffers{Memory: make([]byte, 70000), Stride: 70000, Size: 69000, Count: 1}
	frame := buffers.Memory[RxOffset:]
	copy(frame[12:], []byte{8, 0, 0x45})
	frame[14+9], frame[34+12] = protocolTCP, 5<<4
	for name, c := range map[string]struct {
		payload, segments, size uint32
		flags                   PacketFlags
		wantSegments, wantSize  uint16
	}{
		"both known":            {14480, 10, 1448, TCP, 10, 1448},
		"number":                {14000, 10, 0, TCP, 10, 1400},
		"number, a short one":   {14001, 10, 0, TCP, 10, 1401},
		"size":                  {2897, 0, 1448, TCP, 3, 1448},
		"size, one segment":     {1448, 0, 1448, TCP, 0, 0},
		"neither":               {4000, 0, 0, TCP, 3, 0},
		"neither, not too long": {longest - header, 0, 0, TCP, 0, 0},
		"neither, no TCP":       {4000, 0, 0, UDP, 0, 0},
		"one":                   {1000, 1, 0, TCP, 0, 0},
		"one of some size":      {1000, 1, 100, TCP, 0, 0},
		"one, but too long":     {4000, 1, 0, TCP, 3, 0},
		"number without header": {0, 3, 0, TCP, 3, 0},
	} {
		var a Assembly
		a.Append(0, header+c.payload, 69000)
		a.Packet.Flags = c.flags
		a.Coalesce(buffers, c.segments, c.size, longest)
		p, merged := a.Packet, c.wantSegments > 0
		if p.Flags&Coalesced != 0 != merged || p.Segments != c.wantSegments || p.SegmentSize != c.wantSize {
			t.Errorf("%s: %d segments of %d, flags %b", name, p.Segments, p.SegmentSize, p.Flags)
		}
		if merged && c.payload > 0 && p.HeaderLen != header {
			t.Errorf("%s: header of %d", name, p.HeaderLen)
		}
	}
	var empty Assembly
	empty.begin()
	empty.Coalesce(buffers, 3, 100, longest)
	if empty.Packet.Flags != 0 {
		t.Error("a packet of nothing was merged")
	}
}

func TestStripTakesWhatPrecedesTheFrame(t *testing.T) {
	const header = 12
	var a Assembly
	batch := NewBatch(4, 8)
	a.Append(3, 112, 2048)
	a.Strip(header)
	a.Append(4, 50, 2048)
	a.Deliver(batch)
	p, want := batch.Packets[0], []Fragment{{3, RxOffset + header, 100}, {4, RxOffset, 50}}
	if p.Len != 150 || p.Error != NoDrop || !slices.Equal(batch.Fragments(0), want) {
		t.Errorf("packet %+v of %v, want %v", p, batch.Fragments(0), want)
	}
	for _, n := range []uint32{1, header} { // no header, or nothing behind it
		a.Append(5, n, 2048)
		a.Strip(header)
		a.Deliver(batch)
	}
	for _, p := range batch.Packets[1:] {
		if p.Error != DropDevice || p.Frags != 1 {
			t.Errorf("packet %+v of no frame", p)
		}
	}
	if len(batch.Packets) != 3 {
		t.Errorf("%d packets", len(batch.Packets))
	}
}
