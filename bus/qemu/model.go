package qemu

import (
	"fmt"
	"slices"
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

// Models are the names of the models that there are.
func Models() (names []string) {
	for _, m := range models {
		names = append(names, m.name)
	}
	return names
}

func modelOf(name string) (*model, error) {
	i := slices.IndexFunc(models, func(m model) bool { return m.name == name })
	if i < 0 {
		return nil, fmt.Errorf("QEMU has no model %q that is of use here; there are %v", name, Models())
	}
	return &models[i], nil
}
