package vmxnet3

import (
	"context"
	"fmt"

	"nicd/bus"
	"nicd/framework"
	"nicd/framework/ring"
)

// Start lays out the shared memory and activates the device.
func (d *device) Start(cfg framework.Config) (framework.Queues, error) {
	if err := d.check(&cfg.Settings); err != nil {
		return framework.Queues{}, err
	}
	r := &run{cfg: cfg, vectors: framework.NewVectors(&cfg.Interrupts, cfg.RxQueues, cfg.TxQueues)}
	r.features.Store(uint32(cfg.Features))
	r.merges.Store(cfg.Features.Has(framework.LRO))
	if err := d.build(r); err != nil {
		return framework.Queues{}, fmt.Errorf("vmxnet3: %w", err)
	}
	d.regs.setShared(r.shared.driver.Addr)
	if result := d.regs.command(cmdActivate); result != 0 {
		d.regs.halt()
		if result == bus.Gone {
			return framework.Queues{}, fmt.Errorf("vmxnet3: activate: %w", bus.ErrGone)
		}
		return framework.Queues{}, fmt.Errorf("vmxnet3: %w: activation failed with %d", framework.ErrDevice, result)
	}
	d.run, d.running = r, true
	d.settle()
	return r.queues(), nil
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
		r.shared.driver.put32(dsCommandInfo, rssFields)
		d.regs.command(cmdSetRSSFields)
	}
	d.applyFilters(&r.cfg.Filters, r.cfg.Features)
	d.readStats(&r.statsAtStart)
	if len(r.vectors) > 0 {
		r.shared.driver.put32(dsIntrControl, 0)
	}
}

// Stop ends DMA and makes the device forget the memory that goes away now.
func (d *device) Stop(context.Context) error {
	if !d.running {
		return nil
	}
	d.running = false
	d.run.shared.driver.put32(dsIntrControl, intrDisable)
	d.regs.halt()
	return nil
}

// check tells whether the device can run with s, which keeps to Info.
func (d *device) check(s *framework.Settings) error {
	if s.Features.Has(framework.LRO) && !s.Features.Has(framework.RxChecksum) {
		// The sums of merged packets are stale: only the verdict is good.
		return fmt.Errorf("vmxnet3: %w: lro without rx-csum", framework.ErrUnsupported)
	}
	return nil
}

// Plan: MTU, RSS key and whether there is RSS are read at activation only.
func (d *device) Plan(next framework.Settings) (framework.Effect, error) {
	if err := d.check(&next); err != nil {
		return framework.Reset, err
	}
	now := &d.run.cfg.Settings
	if next.MTU != now.MTU || next.RSS.Key != now.RSS.Key || (next.Features^now.Features)&framework.RSSHash != 0 {
		return framework.Reset, nil
	}
	return framework.Live, nil
}

// Apply makes the device read again what has changed.
func (d *device) Apply(next framework.Settings) error {
	if err := d.check(&next); err != nil {
		return err
	}
	r := d.run
	was := r.cfg.Settings
	r.cfg.Settings = next
	if next.Features != was.Features {
		if next.Features.Has(framework.LRO) {
			r.merges.Store(true)
		}
		r.features.Store(uint32(next.Features))
		r.shared.features(next.Features, r.cfg.RxQueues)
		d.regs.command(cmdUpdateFeatures)
		d.applyFilters(&r.cfg.Filters, next.Features)
	}
	if next.MAC != was.MAC {
		d.regs.setMAC(next.MAC)
	}
	if next.RSS.Indirection != was.RSS.Indirection {
		copy(r.shared.rss.Bytes[rssTable:], next.RSS.Indirection[:])
		d.regs.command(cmdUpdateRSS)
	}
	return nil
}

// build allocates shared memory and rings and fills in what the device reads at
// activation.
func (d *device) build(r *run) (err error) {
	cfg := &r.cfg
	if r.shared, err = allocShared(d.dma, cfg); err != nil {
		return err
	}
	r.shared.fill(cfg, d.mask)
	r.shared.features(cfg.Features, cfg.RxQueues)
	for i := range cfg.TxQueues {
		q, err := d.newTxQueue(r, i)
		if err != nil {
			return fmt.Errorf("transmit queue %d: %w", i, err)
		}
		r.tx = append(r.tx, q)
	}
	for i := range cfg.RxQueues {
		q, err := d.newRxQueue(r, i)
		if err != nil {
			return fmt.Errorf("receive queue %d: %w", i, err)
		}
		r.rx = append(r.rx, q)
	}
	return nil
}

func (r *run) queues() (qs framework.Queues) {
	for _, q := range r.rx {
		qs.Rx = append(qs.Rx, q)
	}
	for _, q := range r.tx {
		qs.Tx = append(qs.Tx, q)
	}
	return qs
}

const descSize = 16 // of every kind of descriptor

// Where the generation bit is.
var (
	txOwner   = ring.Owner{Offset: 8, Bit: txGen}
	rxOwner   = ring.Owner{Offset: 8, Bit: rxGen}
	compOwner = ring.Owner{Offset: 12, Bit: rcGen}
)

func (d *device) newTxQueue(r *run, index int) (*txQueue, error) {
	n := r.cfg.TxDescriptors
	desc := r.shared.tx[index]
	q := &txQueue{
		index:     uint32(index),
		flight:    ring.NewFlight(n),
		buffers:   r.cfg.Buffers,
		bells:     d.regs.pt,
		threshold: bus.Word(desc.Bytes, qdTxThreshold),
		deferred:  bus.Word(desc.Bytes, qdTxDeferred),
	}
	mem, err := d.dma.Alloc(n*descSize, ringAlign)
	if err != nil {
		return nil, err
	}
	comp, err := d.dma.Alloc(n*descSize, ringAlign)
	if err != nil {
		return nil, err
	}
	if q.ring, err = ring.NewCommand[txDesc](mem.Bytes, n, txOwner); err != nil {
		return nil, err
	}
	if q.comp, err = ring.NewCompletion[txComp](comp.Bytes, n, compOwner); err != nil {
		return nil, err
	}
	desc.put64(qdTxRing, mem.Addr)
	desc.put64(qdTxComp, comp.Addr)
	desc.put64(qdDriverData, ^uint64(0))
	desc.put32(qdSize, uint32(n))
	desc.put32(qdCompSize, uint32(n))
	desc.put16(qdDataDescSize, dataDescSize)
	desc.put8(qdVector, uint8(txVector(&r.cfg.Interrupts, index)))
	return q, nil
}

func (d *device) newRxQueue(r *run, index int) (*rxQueue, error) {
	n := r.cfg.RxDescriptors
	desc := r.shared.rx[index]
	q := &rxQueue{
		index:      uint32(index),
		queues:     uint32(r.cfg.RxQueues),
		bells:      d.regs.pt,
		alwaysBell: framework.RxBellQuirk.Get(d.quirks) == framework.RxBellAlways,
		wantsBell:  bus.Word(desc.Bytes, qdRxBell),
		buffers:    r.cfg.Buffers,
		features:   &r.features,
		merges:     &r.merges,
		longest:    uint32(r.cfg.MTU) + longestHeaders,
		headSpeaks: framework.MetadataOnQuirk.Get(d.quirks) == framework.FirstCompletion,
	}
	for i := range q.rings {
		mem, err := d.dma.Alloc(n*descSize, ringAlign)
		if err != nil {
			return nil, err
		}
		if q.rings[i], err = newRxRing(mem, n, r.cfg.Buffers); err != nil {
			return nil, err
		}
		desc.put64(qdRxRings+8*i, mem.Addr)
		desc.put32(qdSize+4*i, uint32(n))
	}
	q.rings[0].skips = framework.SkipsRxSlotsQuirk.Get(d.quirks)
	q.rings[1].skips = q.rings[0].skips
	q.rings[1].flags |= rxBody
	comp, err := d.dma.Alloc(2*n*descSize, ringAlign)
	if err != nil {
		return nil, err
	}
	if q.comp, err = ring.NewCompletion[rxComp](comp.Bytes, 2*n, compOwner); err != nil {
		return nil, err
	}
	desc.put64(qdRxComp, comp.Addr)
	desc.put64(qdDriverData, ^uint64(0))
	desc.put32(qdCompSize, uint32(2*n))
	desc.put8(qdVector, uint8(r.cfg.Interrupts.Rx(index)))
	return q, nil
}

func newRxRing(mem framework.Block, n int, buffers *framework.Buffers) (rxRing, error) {
	if buffers.Size < minHeadBuffer {
		return rxRing{}, fmt.Errorf("%w: buffers of %d bytes, at least %d", framework.ErrUnsupported, buffers.Size, minHeadBuffer)
	}
	desc, err := ring.NewCommand[rxDesc](mem.Bytes, n, rxOwner)
	if err != nil {
		return rxRing{}, err
	}
	return rxRing{
		ring:    desc,
		slots:   ring.NewSlots(n, framework.NoBuffer),
		flags:   min(buffers.Size, maxRxBufferLen),
		buffers: buffers,
	}, nil
}
