package e1000

import (
	"context"
	"fmt"

	"nicd/bus"
	"nicd/framework"
	"nicd/framework/ring"
)

const (
	descSize  = 16
	ringAlign = 128
)

// run is what a device has from Start to Stop.
type run struct {
	cfg     framework.Config
	vectors []framework.Vector
	rctl    uint32
}

// Start resets the device and sets it up from nothing. Receive is enabled last.
func (d *device) Start(cfg framework.Config) (framework.Queues, error) {
	r := &run{cfg: cfg, vectors: framework.NewVectors(&cfg.Interrupts, cfg.RxQueues, cfg.TxQueues)}
	buffer, err := bufferSize(cfg.Buffers.Size)
	if err != nil {
		return framework.Queues{}, err
	}
	if err := d.restart(context.Background()); err != nil {
		return framework.Queues{}, err
	}
	d.bringLinkUp(cfg.Features)
	queues, err := framework.NewQueues(&cfg,
		func(i int) (*rxQueue, error) { return d.newRxQueue(r, i, buffer.size) },
		func(i int) (*txQueue, error) { return d.newTxQueue(r, i) })
	if err != nil {
		return framework.Queues{}, err
	}
	d.startTx(r)
	d.startRx(r)
	d.run = r
	d.route(&cfg.Interrupts)
	r.rctl = rctlEN | rctlBAM | rctlSECRC | buffer.bits
	if cfg.MTU > standardMTU {
		r.rctl |= rctlLPE
	}
	d.applyFilters()
	return queues, nil
}

const standardMTU = 1500

// bringLinkUp lets the MAC follow what the PHY has negotiated, and says whether
// it handles VLAN tags: there is one bit for both directions.
func (d *device) bringLinkUp(f framework.Features) {
	if d.chip.express {
		// ASPM L0s loses packets (DPDK e1000_82571.c).
		d.set(regGCR, gcrL1Active)
		d.set(regGCR2, gcr2NoL0s)
	}
	d.set(regCTRLEXT, ctrlExtDriverLoaded)
	ctrl := d.read(regCTRL)&^(ctrlFRCSPD|ctrlFRCDPX|ctrlVME) | ctrlSLU | ctrlASDE
	if f.Has(framework.VLANStrip) {
		ctrl |= ctrlVME
	}
	d.write(regCTRL, ctrl)
}

// rxSize is a size of receive buffers that the device knows, with its bits in RCTL.
type rxSize struct{ size, bits uint32 }

var rxSizes = [...]rxSize{
	{16384, 1<<rctlSizeShift | rctlBSEX},
	{8192, 2<<rctlSizeShift | rctlBSEX},
	{4096, 3<<rctlSizeShift | rctlBSEX},
	{2048, 0}, {1024, 1 << rctlSizeShift}, {512, 2 << rctlSizeShift}, {256, 3 << rctlSizeShift},
}

// bufferSize is the largest size the device knows that fits n bytes. RCTL.FLXBUF
// would be finer, but VMware's emulation ignores it (DPDK em_rxtx.c).
func bufferSize(n uint32) (rxSize, error) {
	for _, s := range rxSizes {
		if s.size <= n {
			return s, nil
		}
	}
	return rxSize{}, fmt.Errorf("%w: receive buffers of %d bytes", framework.ErrUnsupported, n)
}

func (d *device) startTx(r *run) {
	if d.chip.express && r.cfg.TxQueues > 1 {
		d.set(regTARC, tarcCompensate|tarcMultiQueue|tarcErrata)
		d.set(queueReg(regTARC, 1), tarcCompensate|tarcMultiQueue)
	}
	d.write(regTIPG, tipgCopper)
	d.write(regTCTL, tctlEN|tctlPSP|tctlCollision|tctlRTLC|d.chip.tctl)
}

func (d *device) newTxQueue(r *run, index int) (*txQueue, error) {
	desc, err := ring.AllocDone[txDesc](d.dma, r.cfg.TxDescriptors, ringAlign, txOwner)
	if err != nil {
		return nil, err
	}
	d.writeRing(queueReg(regTDBAL, index), desc.Addr(), desc.Size())
	d.write(queueReg(regTXDCTL, index), txdctlGran|txdctlWrite1|d.chip.txdctl)
	return &txQueue{
		Transmit:    ring.NewTransmit(desc, framework.Register{Region: d.bar, Offset: queueReg(regTDT, index)}),
		buffers:     r.cfg.Buffers,
		cutter:      framework.NewCutter(d.quirks, d.chip.longest),
		burst:       uint32(TSOBurstQuirk.Get(d.quirks)),
		contextEach: ContextQuirk.Get(d.quirks),
	}, nil
}

// writeRing tells the device where a ring of n descriptors is, whose registers
// begin with its base at reg. It is empty.
func (d *device) writeRing(reg uint32, addr uint64, n int) {
	d.write(reg, uint32(addr))
	d.write(reg+regRDBAH-regRDBAL, uint32(addr>>32))
	d.write(reg+regRDLEN-regRDBAL, uint32(n*descSize))
	d.write(reg+regRDH-regRDBAL, 0)
	d.write(reg+regRDT-regRDBAL, 0)
}

func (d *device) startRx(r *run) {
	// No delays: they are known to hang receive, and throttling does as well.
	d.write(regRDTR, 0)
	d.write(regRADV, 0)
	if d.chip.extended {
		d.write(regRFCTL, rfctlExtended|rfctlNoACK)
	}
	if r.cfg.Features.Has(framework.RSSHash) {
		d.writeRSS(&r.cfg.RSS)
		d.write(regMRQC, mrqcRSS)
	}
	d.write(regRXCSUM, uint32(rxChecksums.Of(r.cfg.Features)))
}

// rxChecksums are the bits of regRXCSUM.
var rxChecksums = framework.FeatureBits{
	{Feature: framework.RxChecksum, Bits: rxcsumIP | rxcsumTCPUDP},
	{Feature: framework.RSSHash, Bits: rxcsumHash},
}

func (d *device) writeRSS(rss *framework.RSS) {
	key, table := rss.KeyWords(), rss.TableWords(retaBit)
	framework.WriteWords(d.bar, regRSSRK, key[:])
	framework.WriteWords(d.bar, regRETA, table[:])
}

func (d *device) newRxQueue(r *run, index int, size uint32) (*rxQueue, error) {
	owner := legacyOwner
	if d.chip.extended {
		owner = extendedOwner
	}
	desc, err := ring.AllocDone[rxDesc](d.dma, r.cfg.RxDescriptors, ringAlign, owner)
	if err != nil {
		return nil, err
	}
	d.writeRing(queueReg(regRDBAL, index), desc.Addr(), desc.Size())
	return &rxQueue{
		Receive:  ring.NewReceive(desc, r.cfg.Buffers, size, framework.Register{Region: d.bar, Offset: queueReg(regRDT, index)}),
		extended: d.chip.extended,
		hashes:   r.cfg.Features.Has(framework.RSSHash),
	}, nil
}

// Stop resets the device, which ends DMA.
func (d *device) Stop(ctx context.Context) error { return d.quiet(ctx) }

// Plan: frame size and RSS are set up with the rings.
func (d *device) Plan(next framework.Settings) (framework.Effect, error) {
	return framework.EffectOf(&d.run.cfg.Settings, &next, d.quirks), nil
}

// Apply writes the registers that hold settings.
func (d *device) Apply(next framework.Settings) error {
	r := d.run
	was := r.cfg.Settings
	r.cfg.Settings = next
	if next.Features != was.Features {
		d.bringLinkUp(next.Features)
		d.write(regRXCSUM, uint32(rxChecksums.Of(next.Features)))
	}
	if next.RSS.Indirection != was.RSS.Indirection && next.Features.Has(framework.RSSHash) {
		d.writeRSS(&next.RSS)
	}
	if next.Features != was.Features || next.MAC != was.MAC {
		d.applyFilters()
	}
	return nil
}

// route says which vector each cause has, and how often one may fire.
func (d *device) route(plan *framework.VectorPlan) {
	moderation := uint32(min(plan.Moderation*1000/256, 0xFFFF)) // in units of 256 ns
	if plan.Kind != bus.MSIX {
		d.write(regITR, moderation)
		return
	}
	r := d.run
	ivar := uint32(ivarEachWrite) | (uint32(max(plan.AdminVector, 0))|ivarValid)<<ivarOther
	for q := range r.cfg.RxQueues {
		ivar |= (uint32(plan.Rx(q)) | ivarValid) << (ivarRx + 4*q)
	}
	for q := range r.cfg.TxQueues {
		if plan.TxInterrupts(q) {
			ivar |= (uint32(plan.Tx(q)) | ivarValid) << (ivarTx + 4*q)
		}
	}
	d.write(regIVAR, ivar)
	d.write(regEIAC, intQueues)
	d.write(regIAM, intQueues)
	d.set(regCTRLEXT, ctrlExtClearPBA|ctrlExtAutoMask)
	for v := range plan.Vectors {
		d.write(regEITR+4*uint32(v), moderation)
	}
}
