package rig

import (
	"context"

	"nicd/bus"
	"nicd/framework"
)

// This file is how a device is configured, started and stopped.

// MAC is the address that the rig gives its device.
var MAC = framework.MAC{0x02, 0, 0, 0, 0, 0x01}

// Peer is an address that the device does not have.
var Peer = framework.MAC{0x02, 0, 0, 0, 0, 0x02}

// Key is the RSS key of the published Toeplitz vectors.
var Key = [40]byte{
	0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
	0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
}

func (r *Rig) defaultConfig(kind *bus.InterruptKind) framework.Config {
	queues := min(2, r.Info.MaxRxQueues, r.Info.MaxTxQueues)
	choice := r.Info.Interrupts[0]
	if kind != nil {
		for _, c := range r.Info.Interrupts {
			if c.Kind == *kind {
				choice = c
			}
		}
	}
	c := framework.Config{
		Settings: framework.Settings{MTU: 1500, MAC: MAC, Features: r.Info.Features, RSS: framework.RSS{Key: Key}},
		RxQueues: queues, TxQueues: queues,
		RxDescriptors: r.Info.RxRing.Fit(64), TxDescriptors: r.Info.TxRing.Fit(64),
		Buffers:    r.Buffers,
		Interrupts: Plan(choice, queues),
		Fire:       r.fire,
	}
	for i := range c.RSS.Indirection {
		c.RSS.Indirection[i] = uint8(i % queues)
	}
	return c
}

// fire is framework.Config.Fire.
func (r *Rig) fire(vector int) {
	if vector >= 0 && vector < len(r.Events) {
		r.Events[vector].Signal()
	}
}

// Plan gives each queue pair a vector and the last one to admin events, if there
// are that many.
func Plan(choice framework.InterruptChoice, queues int) framework.VectorPlan {
	p := framework.VectorPlan{Kind: choice.Kind, Vectors: min(choice.Vectors, queues+1)}
	p.AdminVector = p.Vectors - 1
	for q := range queues {
		v := q % max(p.Vectors-1, 1)
		p.RxVector = append(p.RxVector, v)
		p.TxVector = append(p.TxVector, v)
	}
	return p
}

// Start starts the device with r.Config, posts buffers to it and unmasks its
// vectors.
func (r *Rig) Start() {
	r.T.Helper()
	r.must(r.TryStart())
	for q := range r.Queues.Rx {
		r.Refill(q)
	}
	r.UnmaskAll()
}

// TryStart starts the device with r.Config and nothing else: no buffer is posted
// and every vector is masked.
func (r *Rig) TryStart() error {
	if r.opt.BeforeStart != nil {
		r.opt.BeforeStart()
	}
	r.mark = r.dmaUsed
	if err := r.setInterrupts(); err != nil {
		return err
	}
	qs, err := r.Device.Start(r.Config)
	if err != nil {
		r.dmaUsed = r.mark
		return err
	}
	r.Queues = qs
	r.sent = make([][]sentPacket, len(qs.Tx))
	return nil
}

// UnmaskAll unmasks all vectors.
func (r *Rig) UnmaskAll() {
	for v := range r.Config.Interrupts.Vectors {
		r.Device.Unmask(v)
	}
}

func (r *Rig) setInterrupts() error {
	for len(r.Events) < r.Config.Interrupts.Vectors {
		e, err := bus.NewEvent()
		if err != nil {
			return err
		}
		r.Events = append(r.Events, e)
	}
	return r.Bus.SetInterrupts(r.Config.Interrupts.Kind, r.Events[:r.Config.Interrupts.Vectors])
}

// Stop stops the device; every buffer is the rig's again.
func (r *Rig) Stop() {
	r.T.Helper()
	if err := r.Device.Stop(context.WithoutCancel(r.Context)); err != nil {
		r.T.Errorf("stop: %v", err)
	}
	r.Queues = framework.Queues{}
	r.dmaUsed = r.mark
	for b, w := range r.with {
		if w == device {
			r.give(framework.Buffer(b))
		}
	}
	if len(r.free) != len(r.with) {
		r.T.Errorf("%d buffers after stop, %d at first", len(r.free), len(r.with))
	}
}
