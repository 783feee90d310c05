package ring

// Done is a ring that the driver writes, up to a tail register, and in whose
// descriptors the device sets a bit when it has finished with them. Adding
// publishes nothing: the descriptors are the device's when the driver writes
// Tail to the register, a store that is ordered after all those before it.
//
// To send or to post:
//
//	d := ring.Next()
//	*d = descriptor{...} // with the done bit clear
//	ring.Add()
//
// and to consume, oldest first, Take: a descriptor is never handed out twice, nor one
// that is not outstanding, whatever bits the device sets.
type Done[D any] struct {
	memory[D]
	span
}

// NewDone makes a ring of n descriptors at the start of mem, all zero. The
// memory stays the caller's and must outlive the ring.
func NewDone[D any](mem []byte, n int, done Owner) (*Done[D], error) {
	m, err := overlay[D](mem, n, done)
	if err != nil {
		return nil, err
	}
	return &Done[D]{memory: m, span: span{size: uint32(n)}}, nil
}

// Next is the descriptor at Tail, for the driver to fill in completely: it still
// holds what the device wrote a lap ago, the done bit included.
func (r *Done[D]) Next() *D { return &r.desc[r.tail] }

// Add ends the descriptor that Next returned. A full ring panics; look at Space
// first.
func (r *Done[D]) Add() { r.push() }

// Ready tells whether the oldest outstanding descriptor is done. It changes
// nothing.
func (r *Done[D]) Ready() bool { return r.used > 0 && r.load(r.head)&r.bit != 0 }

// IsDone tells whether the descriptor at index i is done. It must be
// outstanding; the oldest report of a [Flight] is.
func (r *Done[D]) IsDone(i uint32) bool { return r.load(i)&r.bit != 0 }

// Take releases the oldest outstanding descriptor, if it is done, and returns a
// copy of it and where it was.
func (r *Done[D]) Take() (i uint32, d D, ok bool) {
	i = r.head
	if !r.Ready() {
		return i, d, false
	}
	d = r.desc[i]
	r.Release(1)
	return i, d, true
}

// address makes the descriptor at index i one of a buffer alone: its device address
// in the first eight bytes, zeros behind.
func (r *Done[D]) address(i uint32, addr uint64) {
	w := r.words[i*r.stride:][:r.stride]
	clear(w)
	w[0], w[1] = uint32(addr), uint32(addr>>32)
}
