package framework

import (
	"slices"
	"testing"

	"nicd/bus"
)

func TestVectors(t *testing.T) {
	p := VectorPlan{Vectors: 3, RxVector: []int{0, 1, -1, -1}, TxVector: []int{-1, 1, 2, -1}, AdminVector: 2}
	v := NewVectors(&p, 4, 4)
	for i, want := range []Cause{
		{Rx: 0b1001}, // queue 3 has none: it is polled
		{Rx: 0b10, Tx: 0b10},
		{Rx: 0b100, Tx: 0b100, Admin: true},
	} {
		if v[i].Cause != want {
			t.Errorf("vector %d: %+v, want %+v", i, v[i].Cause, want)
		}
	}
	for q, want := range []bool{false, true, true, false, false} {
		if p.TxInterrupts(q) != want {
			t.Errorf("transmit queue %d interrupts: %v", q, !want)
		}
	}
	if v[0].Mask() {
		t.Error("a new vector is not masked")
	}
	v[0].Unmask()
	if !v[0].Mask() || v[0].Mask() {
		t.Error("Mask tells the wrong thing")
	}
	v[0].Unmask()
	v[0].Fired()
	if v[0].Mask() {
		t.Error("a vector that masked itself is to be masked again")
	}
}

// TestNoVectors: a device that is polled.
func TestNoVectors(t *testing.T) {
	p := VectorPlan{AdminVector: -1}
	if v := NewVectors(&p, 2, 2); len(v) != 0 {
		t.Errorf("%d vectors", len(v))
	}
	if p.Rx(1) != 0 || p.Tx(0) != 0 {
		t.Error("queues without vectors have 0")
	}
}

func TestInterruptChoices(t *testing.T) {
	got := InterruptChoices(bus.Info{Vectors: [3]int{1, 32, 0}}, [3]int{1, 1, 5})
	want := []InterruptChoice{{bus.MSI, 1}, {bus.INTx, 1}}
	if !slices.Equal(got, want) {
		t.Errorf("choices %v, want %v", got, want)
	}
}
