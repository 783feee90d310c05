package drivertest_test

import (
	"strings"
	"testing"

	"nicd/drivers/e1000"
	"nicd/framework"
	"nicd/framework/drivertest"
	"nicd/framework/drivertest/rig"
	"nicd/framework/drivertest/simbench"
)

// modestTx is a transmit queue that fills in no checksums.
type modestTx struct{ framework.TxQueue }

func (q modestTx) Put(b *framework.Batch, from int) int {
	for i := range b.Packets {
		b.Packets[i].Flags &^= framework.ChecksumPartial
	}
	return q.TxQueue.Put(b, from)
}

// modest is a driver that offers as little as a driver may: one queue pair, the
// ordinary MTU, no feature, no filter but its own address, short rings of 2^n.
func modest() *broken {
	return &broken{Driver: e1000.New(), device: func(d *brokenDevice) {
		d.info = func(i *framework.Info) {
			i.Features, i.MaxTSOLen, i.MaxTSOFragments = 0, 0, 0
			i.MaxMTU, i.MaxUnicast, i.MaxMulticast = 1500, 0, 0
			i.MaxRxQueues, i.MaxTxQueues = 1, 1
			rule := framework.RingRule{Min: 64, Max: 256, Multiple: framework.PowersOfTwo, Default: 128}
			i.RxRing, i.TxRing = rule, rule
		}
		d.filters = func(f *framework.Filters) { f.Unicast, f.Multicast = nil, nil }
		d.start = func(c *framework.Config) error {
			c.Filters.Unicast, c.Filters.Multicast = nil, nil
			return nil
		}
		d.tx = func(q framework.TxQueue) framework.TxQueue { return modestTx{q} }
	}}
}

// TestModestDriver: what a driver does not offer is asked of it by no check.
func TestModestDriver(t *testing.T) {
	b, err := simbench.New(modest(), "82540EM", simbench.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b.Quick = true
	drivertest.Run(t, b)
}

// TestThoughtlessBench: a bench that lacks what it does not say that it lacks is
// told so, by the check that needs it.
func TestThoughtlessBench(t *testing.T) {
	for check, want := range map[string]string{
		"lro.mode":   "Bench.Lacks has to say why not",
		"bad.frames": "Bench.Open has to do as Setup asks",
	} {
		b, err := simbench.New(e1000.New(), "82540EM", simbench.Options{})
		if err != nil {
			t.Fatal(err)
		}
		open := b.Open
		b.Open = func(drivertest.Setup) (*rig.Station, error) { return open(drivertest.Setup{}) }
		b.Lacks, b.Quick = nil, true
		b.Select = func(name string) bool { return name == check }
		r := drivertest.Check(t.Context(), b)
		if len(r.Checks) != 1 || len(r.Checks[0].Problems) != 1 || !strings.Contains(r.Checks[0].Problems[0], want) {
			t.Errorf("%s: %+v", check, r.Checks)
		}
	}
}
