package framework

import "testing"

func TestFeatureBits(t *testing.T) {
	table := FeatureBits{{RxChecksum, 1}, {LRO, 8}, {TSO4 | TSO6, 0x30}}
	for f, want := range map[Features]uint64{
		0: 0, RxChecksum: 1, RxChecksum | LRO: 9, VLANStrip: 0, TSO4: 0, TSO4 | TSO6 | LRO: 0x38,
	} {
		if got := table.Of(f); got != want {
			t.Errorf("%v: bits %#x, want %#x", f, got, want)
		}
	}
}
