package framework

// FeatureBits says by which bits of a register or of shared memory a device is told
// to do what.
type FeatureBits []struct {
	Feature Features
	Bits    uint64
}

// Of is the bits for all features of f. Features that the table does not have need
// no bit.
func (t FeatureBits) Of(f Features) (bits uint64) {
	for _, e := range t {
		if f.Has(e.Feature) {
			bits |= e.Bits
		}
	}
	return bits
}
