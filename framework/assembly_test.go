package framework

import "testing"

func TestAssembly(t *testing.T) {
	dst := NewBatch(4, MaxFragments)
	var a Assembly
	a.Begin()
	a.Deliver(dst)
	if len(dst.Packets) != 0 || a.Open() {
		t.Fatal("an empty packet was delivered")
	}
	a.Begin()
	a.Add(7, 100)
	a.Add(3, 20)
	a.Packet.Hash = 9
	a.Deliver(dst)
	a.Begin()
	a.Add(5, 1)
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
	a.Begin()
	for i := range MaxFragments {
		if !a.Room(dst) || !a.Add(Buffer(i), 1) {
			t.Fatalf("fragment %d refused", i)
		}
	}
	if !a.Room(dst) {
		t.Error("no room to find out that the chain is too long")
	}
	if a.Add(99, 1) {
		t.Error("one fragment too many taken")
	}
	a.Deliver(dst)
	if p := dst.Packets[0]; p.Error != DropTooLong || p.Frags != MaxFragments || p.Len != MaxFragments {
		t.Errorf("packet %+v", p)
	}
	a.Begin()
	if a.Room(dst) {
		t.Error("room in a full batch")
	}
}
