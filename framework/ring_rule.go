package framework

import (
	"fmt"
	"math/bits"
)

// PowersOfTwo is the RingRule.Multiple of rings whose size is a power of two, as is
// then what the rule allows at least, at most and usually.
const PowersOfTwo = -1

// Allows tells whether a ring may have n descriptors.
func (r RingRule) Allows(n int) bool { return n >= r.Min && n <= r.Max && r.step(n) == n }

// Fit is the most descriptors, at most n, that a ring may have, or Min.
func (r RingRule) Fit(n int) int { return max(r.step(min(n, r.Max)), r.Min) }

// Above is the fewest descriptors, more than n, that a ring may have, or Max.
func (r RingRule) Above(n int) int {
	above := r.step(n) + max(r.Multiple, 1)
	if r.Multiple == PowersOfTwo {
		above = max(2*r.step(n), 1)
	}
	return min(max(above, r.Min), r.Max)
}

// step is the largest number, at most n, that Multiple permits.
func (r RingRule) step(n int) int {
	switch {
	case n <= 0:
		return 0
	case r.Multiple == PowersOfTwo:
		return 1 << (bits.Len(uint(n)) - 1)
	case r.Multiple > 1:
		return n - n%r.Multiple
	}
	return n
}

// String is the rule as messages have it: "64 to 4096 in steps of 8".
func (r RingRule) String() string {
	if r.Multiple == PowersOfTwo {
		return fmt.Sprintf("%d to %d, powers of two", r.Min, r.Max)
	}
	return fmt.Sprintf("%d to %d in steps of %d", r.Min, r.Max, max(r.Multiple, 1))
}
