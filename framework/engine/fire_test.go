package engine

import "testing"

// TestDriverFires: a driver whose device does not interrupt for what came while a
// vector was masked fires it, and is then asked what it was.
func TestDriverFires(t *testing.T) {
	r := newRig(t, 1, nil).start()
	r.until("unmasked", func() bool { r.dev.mu.Lock(); defer r.dev.mu.Unlock(); return !r.dev.masked[0] })
	before := r.count(Interrupts)
	r.dev.cfg.Fire(0)
	r.until("counted", func() bool { return r.count(Interrupts) == before+1 })
	r.dev.cfg.Fire(-1) // no vector: nothing happens
	r.dev.cfg.Fire(1 << 20)
	r.finish()
}
