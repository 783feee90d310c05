package daemon

import (
	"slices"
	"strings"
	"testing"

	"nicd/bus"
	"nicd/config"
	"nicd/framework"
)

func testInfo() framework.Info {
	return framework.Info{
		Model: "TEST", MaxRxQueues: 8, MaxTxQueues: 2, MinMTU: 60, MaxMTU: 9000, MAC: framework.MAC{2, 1},
		RxRing: framework.RingRule{Min: 32, Max: 4096, Multiple: 32, Default: 512},
		TxRing: framework.RingRule{Min: 32, Max: 4096, Multiple: 32, Default: 256},
		Interrupts: []framework.InterruptChoice{
			{Kind: bus.MSIX, Vectors: 5}, {Kind: bus.MSI, Vectors: 1}, {Kind: bus.INTx, Vectors: 1},
		},
	}
}

func resolution(t *testing.T, settings ...framework.QuirkSetting) *framework.Resolution {
	t.Helper()
	r, err := framework.ResolveQuirks(framework.QuirkSources{Driver: "test", InterfaceConfig: settings})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestMakePlan(t *testing.T) {
	for _, test := range []struct {
		name   string
		config config.Interface
		quirk  string // tx-interrupt
		rx, tx int
		kind   bus.InterruptKind
		rxV    []int
		txV    []int
		admin  int
	}{
		{name: "all left open", config: config.Interface{Interrupts: config.AutoInterrupts},
			rx: 4, tx: 2, kind: bus.MSIX, rxV: []int{0, 1, 2, 3}, txV: []int{0, 1}, admin: 4},
		{name: "more pairs than vectors", config: config.Interface{Interrupts: config.AutoInterrupts, RxQueues: 6},
			rx: 6, tx: 2, kind: bus.MSIX, rxV: []int{0, 1, 2, 3, 0, 1}, txV: []int{0, 1}, admin: 4},
		{name: "one vector for all", config: config.Interface{Interrupts: config.INTx, RxQueues: 2},
			rx: 2, tx: 2, kind: bus.INTx, rxV: []int{0, 0}, txV: []int{0, 0}, admin: 0},
		{name: "transmit without interrupt", config: config.Interface{Interrupts: config.MSIX, RxQueues: 2}, quirk: "false",
			rx: 2, tx: 2, kind: bus.MSIX, rxV: []int{0, 1}, txV: []int{-1, -1}, admin: 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			info := testInfo()
			test.config.MTU = 1500
			var settings []framework.QuirkSetting
			if test.quirk != "" {
				settings = append(settings, framework.QuirkSetting{Name: "tx-interrupt", Value: test.quirk})
			}
			p, err := makePlan(&test.config, &info, resolution(t, settings...), &framework.FeaturePlan{})
			if err != nil {
				t.Fatal(err)
			}
			v := p.Interrupts
			if p.RxQueues != test.rx || p.TxQueues != test.tx || v.Kind != test.kind || v.AdminVector != test.admin ||
				!slices.Equal(v.RxVector, test.rxV) || !slices.Equal(v.TxVector, test.txV) {
				t.Errorf("got %d+%d queues, %+v", p.RxQueues, p.TxQueues, v)
			}
			if p.RxDescriptors != 512 || p.TxDescriptors != 256 || p.MAC != info.MAC {
				t.Errorf("got %d+%d descriptors, MAC %v", p.RxDescriptors, p.TxDescriptors, p.MAC)
			}
			for _, q := range p.RSS.Indirection {
				if int(q) >= p.RxQueues {
					t.Errorf("RSS leads to queue %d of %d", q, p.RxQueues)
				}
			}
		})
	}
}

// TestPlanRefuses: what the config asks for and the device cannot is refused
// with where, what, and what the device can.
func TestPlanRefuses(t *testing.T) {
	origin := config.Origin{File: "nicd.hcl", Line: 7, What: "interface x"}
	for _, test := range []struct {
		config config.Interface
		want   string
	}{
		{config.Interface{MTU: 9001}, "mtu 9001: the TEST takes 60 to 9000"},
		{config.Interface{TxQueues: 3}, "tx_queues: the TEST has 2, not 3"},
		{config.Interface{RxDescriptors: 33}, "rx_descriptors: the TEST takes 32 to 4096 in steps of 32, not 33"},
		{config.Interface{TxDescriptors: 8192}, "tx_descriptors: the TEST takes 32 to 4096"},
	} {
		c := test.config
		c.Origin, c.Interrupts = origin, config.AutoInterrupts
		if c.MTU == 0 {
			c.MTU = 1500
		}
		info := testInfo()
		_, err := makePlan(&c, &info, resolution(t), &framework.FeaturePlan{})
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "nicd.hcl:7: interface x: ") {
			t.Errorf("got %v, want nicd.hcl:7: ... %s", err, test.want)
		}
	}
	info := testInfo()
	info.Interrupts = info.Interrupts[2:]
	c := config.Interface{MTU: 1500, Interrupts: config.MSIX, Origin: origin}
	if _, err := makePlan(&c, &info, resolution(t), &framework.FeaturePlan{}); err == nil || !strings.Contains(err.Error(), `"msi-x": the TEST offers intx`) {
		t.Errorf("got %v", err)
	}
}

// TestPlaceable: a processor that is not there used to leave a task anywhere, and
// nobody was told.
func TestPlaceable(t *testing.T) {
	for _, test := range []struct {
		cpus   []int
		queues int
		has    []int
		want   string // "" if it can be done
	}{
		{nil, 4, []int{0}, ""},
		{[]int{0, 1}, 2, []int{0, 1, 2}, ""},
		{[]int{1, 1}, 2, []int{0, 1, 2}, ""},
		{[]int{0, 1, 2}, 1, []int{0, 1, 2, 3}, ""},
		{[]int{99}, 1, []int{0, 1, 2, 3, 8}, "may not run on processor 99, or there is none; it has 0-3, 8"},
		{[]int{0}, 2, []int{0, 1, 2}, "names 1 for 2 queues: name one for each"},
		{[]int{0, 1}, 2, []int{0, 1}, "2 queues that poll all the time take 3 processors, one for all else; nicd has 2"},
	} {
		err := placeable(&config.Interface{CPUs: test.cpus}, test.queues, test.has)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("cpus %v for %d queues on %v: got %v, want %q", test.cpus, test.queues, test.has, err, test.want)
		}
	}
	if len(processors()) < 1 {
		t.Error("this test runs on no processor")
	}
}
