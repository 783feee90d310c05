package sim

import (
	"context"
	"runtime"
	"time"
)

// run is the worker: it works while there is work, looks a little longer, and
// sleeps until a doorbell rings.
func (d *Device) run(ctx context.Context) {
	defer d.worker.Done()
	bells := d.host.bells
	for ctx.Err() == nil {
		if d.model.Work(d.opt.Budget) || d.spin(ctx) {
			continue
		}
		bells.Arm()
		if d.model.Work(d.opt.Budget) {
			bells.Disarm()
			continue
		}
		if bells.Sleep(ctx) != nil {
			return
		}
	}
}

// spin looks for work for a while and tells whether some was found and done.
func (d *Device) spin(ctx context.Context) bool {
	if d.opt.Spin < 0 {
		return false
	}
	for begin := time.Now(); time.Since(begin) < d.opt.Spin && ctx.Err() == nil; {
		runtime.Gosched()
		if d.model.Work(d.opt.Budget) {
			return true
		}
	}
	return false
}
