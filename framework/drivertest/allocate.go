package drivertest

import "runtime"

// allocates fails if do allocates each time that it is tried, after prepare. What
// other goroutines (the model's) allocate meanwhile is counted too, so that one
// time without is proof.
func (t *c) allocates(what string, prepare, do func()) {
	const tries = 20
	least := ^uint64(0)
	for range tries {
		prepare()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		do()
		runtime.ReadMemStats(&after)
		if least = min(least, after.Mallocs-before.Mallocs); least == 0 {
			return
		}
	}
	t.Errorf("%s: at least %d allocations", what, least)
}
