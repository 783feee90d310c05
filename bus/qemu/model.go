package qemu

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// model is one of QEMU's network device models.
type model struct {
	name   string // ours, as package config spells it
	device string // QEMU's
	// vectors is how many message interrupts it has, at most.
	vectors int
	// cutsWrongly: before QEMU 8.0, without a backend that takes TSO frames whole,
	// these become IP fragments instead of TCP segments (QEMU 02ef5fdc09).
	cutsWrongly bool
}

var models = []model{
	{name: "vmxnet3", device: "vmxnet3", vectors: 25, cutsWrongly: true},
	{name: "82540EM", device: "e1000"},
	{name: "82545EM", device: "e1000-82545em"},
	{name: "82544GC", device: "e1000-82544gc"},
	{name: "82574L", device: "e1000e", vectors: 5, cutsWrongly: true},
}

// OtherModel before QEMU's own name of a PCI network device makes it a model: that of
// a device which no driver here is for, as in "pci:virtio-net-pci".
const OtherModel = "pci:"

// otherVectors is how many message interrupts such a device has, at most.
const otherVectors = 9

// other is the model of that name, if it is such a device's.
func other(name string) *model {
	device, ok := strings.CutPrefix(name, OtherModel)
	notInNames := func(r rune) bool {
		return !strings.ContainsRune("-_.", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}
	if !ok || device == "" || strings.ContainsFunc(device, notInNames) {
		return nil
	}
	return &model{name: name, device: device, vectors: otherVectors}
}

// Models are the names of the models that there are drivers for.
func Models() (names []string) {
	for _, m := range models {
		names = append(names, m.name)
	}
	return names
}

func modelOf(name string) (*model, error) {
	if m := other(name); m != nil {
		return m, nil
	}
	i := slices.IndexFunc(models, func(m model) bool { return m.name == name })
	if i < 0 {
		return nil, fmt.Errorf("QEMU has no model %q that is of use here; there are %v, and others as %sNAME", name, Models(), OtherModel)
	}
	return &models[i], nil
}
