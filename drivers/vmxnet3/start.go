package vmxnet3

import (
	"context"
	"fmt"
	"sync/atomic"

	"nicd/framework"
)

// run is what a device has from Start to Stop.
type run struct {
	cfg      framework.Config
	shared   *sharedMemory
	addr     uint64 // of shared
	queues   framework.Queues
	vectors  []framework.Vector
	features atomic.Uint32 // framework.Features in force
	merges   atomic.Bool   // LRO has been on: there may be merged packets
	broken   atomic.Uint64 // transmit queues whose completions made no sense
}

// txDescs and rxDescs are the descriptors of the queues.
func (r *run) txDescs() []queueDesc { return r.shared.queues[:r.cfg.TxQueues] }
func (r *run) rxDescs() []queueDesc { return r.shared.queues[r.cfg.TxQueues:][:r.cfg.RxQueues] }

// Start lays out the shared memory and activates the device.
func (d *device) Start(cfg framework.Config) (framework.Queues, error) {
	r, err := d.build(cfg)
	if err != nil {
		return framework.Queues{}, err
	}
	d.regs.setShared(r.addr)
	if result := d.regs.command(cmdActivate); result != 0 {
		d.regs.halt()
		return framework.Queues{}, fmt.Errorf("%w: activation failed with %d", framework.ErrDevice, result)
	}
	d.run = r
	d.settle()
	return r.queues, nil
}

// build allocates shared memory and rings and fills in what the device reads at
// activation.
func (d *device) build(cfg framework.Config) (*run, error) {
	r := &run{cfg: cfg, vectors: framework.NewVectors(&cfg.Interrupts, cfg.RxQueues, cfg.TxQueues)}
	r.features.Store(uint32(cfg.Features))
	r.merges.Store(cfg.Features.Has(framework.LRO))
	shared, err := newShared(d.dma, &cfg, d.mask)
	if err != nil {
		return nil, err
	}
	r.shared, r.addr = shared.Fields, shared.Addr
	r.queues, err = framework.NewQueues(&cfg,
		func(i int) (*rxQueue, error) { return d.newRxQueue(r, i) },
		func(i int) (*txQueue, error) { return d.newTxQueue(r, i) })
	return r, err
}

// settle does what only an active device takes notice of. Activation may have
// brought back the permanent address.
func (d *device) settle() {
	r := d.run
	for v := range uint32(muteVector(&r.cfg.Interrupts)) + 1 {
		d.regs.pt.Write32(regIMR+regStride*v, 1)
	}
	d.regs.setMAC(r.cfg.MAC)
	if d.revision >= 4 && r.cfg.Features.Has(framework.RSSHash) {
		r.shared.driver.commandInfo[0] = rssFields
		d.regs.command(cmdSetRSSFields)
	}
	d.applyFilters()
	if len(r.vectors) > 0 {
		r.shared.driver.interruptControl.Store(0)
	}
}

// Stop ends DMA and makes the device forget the memory that goes away now.
func (d *device) Stop(context.Context) error {
	d.regs.halt()
	return nil
}

// Plan: MTU, RSS key and whether there is RSS are read at activation only.
func (d *device) Plan(next framework.Settings) (framework.Effect, error) {
	return framework.EffectOf(&d.run.cfg.Settings, &next, d.quirks), nil
}

// Apply makes the device read again what has changed.
func (d *device) Apply(next framework.Settings) error {
	r := d.run
	was := r.cfg.Settings
	r.cfg.Settings = next
	if next.Features != was.Features {
		if next.Features.Has(framework.LRO) {
			r.merges.Store(true)
		}
		r.features.Store(uint32(next.Features))
		r.shared.driver.features = uptFeatures.Of(next.Features)
		d.regs.command(cmdUpdateFeatures)
		d.applyFilters()
	}
	if next.MAC != was.MAC {
		d.regs.setMAC(next.MAC)
	}
	if next.RSS.Indirection != was.RSS.Indirection {
		r.shared.rss.table = next.RSS.Indirection
		d.regs.command(cmdUpdateRSS)
	}
	return nil
}
