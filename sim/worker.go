package sim

import (
	"context"
	"runtime"
	"time"
)

// startWorker makes the device run, until stopWorker. With life held.
func (d *Device) startWorker() {
	if d.opt.Passive {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.cancel = cancel
	d.worker.Go(func() { d.run(ctx) })
}

func (d *Device) stopWorker() {
	if d.cancel != nil {
		d.cancel()
	}
	d.worker.Wait()
}

// run is the worker: it works while there is work, looks a little longer, and
// sleeps until a doorbell rings.
func (d *Device) run(ctx context.Context) {
	bells := d.host.bells.Load()
	for ctx.Err() == nil {
		if d.work() || d.spin(ctx) {
			continue
		}
		bells.Arm()
		if d.work() {
			bells.Disarm()
			continue
		}
		if bells.Sleep(ctx) != nil {
			return
		}
	}
}

// work carries out posted register writes and has the model work. It tells
// whether there may be more to do.
func (d *Device) work() bool {
	if bells := d.host.bells.Load(); bells.Pending() {
		// A driver that posts nonsense harms itself; who serves it will say so.
		_ = bells.CarryOut(d.writePosted)
	}
	return d.model.Work(d.opt.Budget)
}

func (d *Device) writePosted(region int, offset, value uint32) {
	if region >= 0 && region < len(d.regions) && d.regions[region] != nil {
		d.regions[region].Write32(offset, value)
	}
}

// spin looks for work for a while and tells whether some was found and done.
func (d *Device) spin(ctx context.Context) bool {
	if d.opt.Spin < 0 {
		return false
	}
	for begin := time.Now(); time.Since(begin) < d.opt.Spin && ctx.Err() == nil; {
		runtime.Gosched()
		if d.work() {
			return true
		}
	}
	return false
}
