package framework

import (
	"errors"
	"strings"
	"testing"

	"nicd/bus"
)

func sensibleInfo() Info {
	return Info{
		Model: "NIC", MaxRxQueues: 2, MaxTxQueues: 2, MaxMTU: 1500,
		RxRing: RingRule{Min: 32, Max: 512, Default: 64}, TxRing: RingRule{Min: 32, Max: 512, Multiple: 8, Default: 64},
		Interrupts: []InterruptChoice{{Kind: bus.MSIX, Vectors: 3}},
		Counters:   []CounterInfo{{Name: "rx_errors", Doc: "errors"}},
	}
}

func TestInfoCheck(t *testing.T) {
	for what, change := range map[string]func(*Info){
		"no receive queues":      func(i *Info) { i.MaxRxQueues = 0 },
		"no transmit queues":     func(i *Info) { i.MaxTxQueues = -1 },
		"queues without end":     func(i *Info) { i.MaxTxQueues = 1 << 60 },
		"rings":                  func(i *Info) { i.RxRings = -1 },
		"no MTU":                 func(i *Info) { i.MaxMTU = 0 },
		"MTUs":                   func(i *Info) { i.MinMTU = 1501 },
		"no descriptors":         func(i *Info) { i.RxRing.Min = 0 },
		"ring without end":       func(i *Info) { i.TxRing.Max = 1 << 60 },
		"default":                func(i *Info) { i.TxRing.Default = 1024 },
		"steps":                  func(i *Info) { i.TxRing.Multiple = -8 },
		"vectors":                func(i *Info) { i.Interrupts[0].Vectors = 0 },
		"kind of interrupt":      func(i *Info) { i.Interrupts[0].Kind = 3 },
		"kinds without end":      func(i *Info) { i.Interrupts = make([]InterruptChoice, 100) },
		"counters without end":   func(i *Info) { i.Counters = make([]CounterInfo, 1<<16) },
		"a model for terminals":  func(i *Info) { i.Model = "\x1b]0;x\a" },
		"a mode of two lines":    func(i *Info) { i.Mode = "a\nb" },
		"a counter for pages":    func(i *Info) { i.Counters[0].Doc = strings.Repeat("x", 1<<16) },
		"a counter for printers": func(i *Info) { i.Counters[0].Name = "\f" },
	} {
		i := sensibleInfo()
		change(&i)
		if err := i.Check(); !errors.Is(err, ErrInfo) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if i := sensibleInfo(); i.Check() != nil {
		t.Error(i.Check())
	}
}

func TestDescriptionCheck(t *testing.T) {
	for what, change := range map[string]func(*Description){
		"no name":   func(d *Description) { d.Name = "" },
		"name":      func(d *Description) { d.Name = "\r" },
		"version":   func(d *Description) { d.Version = "\x00" },
		"device":    func(d *Description) { d.IDs = []DeviceID{{Name: "\x9b"}} },
		"reference": func(d *Description) { d.Quirks = []Declaration{{Reference: "\x1b[2J"}} },
	} {
		d := Description{Name: "d"}
		change(&d)
		if err := d.Check(); !errors.Is(err, ErrInfo) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
