package drivertest

import (
	"context"

	"nicd/framework/drivertest/rig"
	"nicd/sim"
)

// nobody is the far end of a device whose wire is not the kit's. Whoever wants
// something of it learns that the check is not applicable.
type nobody struct {
	t   *c
	why string
}

var _ rig.Tester = nobody{}

func (f nobody) Send(context.Context, ...sim.Frame) error {
	f.t.desert(f.why)
	return nil
}

func (f nobody) Next(context.Context) (r sim.Received, err error) {
	f.t.desert(f.why)
	return r, nil
}

func (f nobody) TryNext() (r sim.Received, ok bool) {
	f.t.desert(f.why)
	return r, false
}

// desert ends the goroutine, and the check: at once if the goroutine is the check's
// own, else as soon as that waits for something. A problem that was found before
// stands.
func (t *c) desert(why string) {
	t.mu.Lock()
	t.deserted = true
	t.mu.Unlock()
	t.giveUp()
	t.notApplicable("%s", why)
}
