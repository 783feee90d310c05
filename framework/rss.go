package framework

import "encoding/binary"

// This file is how devices want to be told of RSS.

// KeyWords is the key as the 32-bit registers of devices that have it in some.
func (r *RSS) KeyWords() (words [10]uint32) {
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(r.Key[4*i:])
	}
	return words
}

// TableWords is the indirection table as the 32-bit registers of devices that have
// four entries in each, a byte for one, in which the queue begins at bit shift.
func (r *RSS) TableWords(shift int) (words [32]uint32) {
	for i, queue := range r.Indirection {
		words[i/4] |= uint32(queue<<shift) << (i % 4 * 8)
	}
	return words
}
