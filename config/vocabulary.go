package config

import (
	"slices"

	"nicd/framework"
)

// Vocabulary is what a config can refer to that is not in it. The zero value
// knows no bundled driver and the models without their variations.
type Vocabulary struct {
	// Drivers are the drivers that are part of this program. A name that is
	// neither one of them nor has a driver block is an error. Their quirks are
	// checked; a quirk that nobody here knows is let through for any other
	// driver, because it may be that driver's own, and framework.ResolveQuirks
	// judges it when the driver is known.
	Drivers []string
	// Models are the device models; nil is KnownModels.
	Models []Model
	// QEMUModels are the models that devices on a bus "qemu" can be; nil is
	// KnownQEMUModels.
	QEMUModels []string
}

// Model is a device model that a device "sim" block can name.
type Model struct {
	Name      string
	Revisions int // 1 to so many; 0 if it has none
	// Variation is a struct whose fields are the knobs of a variations block, by
	// their names in lower case with dashes: FewVectors is few-vectors. They are
	// bool, number, string, time.Duration or an encoding.TextUnmarshaler, whose
	// error is the end of "NAME is ...".
	Variation any
}

// KnownModels are the models that exist, without variations.
func KnownModels() []Model {
	return []Model{{Name: "vmxnet3", Revisions: 4}, {Name: "82540EM"}, {Name: "82545EM"}, {Name: "82544GC"}, {Name: "82574L"}}
}

// KnownQEMUModels are the models of QEMU that there are drivers for.
func KnownQEMUModels() []string {
	return []string{"vmxnet3", "82540EM", "82545EM", "82544GC", "82574L"}
}

// otherQEMUModel before QEMU's own name of a device is a model that only QEMU knows,
// for a driver that somebody else has written.
const otherQEMUModel = "pci:"

func (v Vocabulary) qemuModels() []string {
	if v.QEMUModels == nil {
		return KnownQEMUModels()
	}
	return v.QEMUModels
}

func (v Vocabulary) models() []Model {
	if v.Models == nil {
		return KnownModels()
	}
	return v.Models
}

func (v Vocabulary) model(name string) (Model, bool) {
	i := slices.IndexFunc(v.models(), func(m Model) bool { return m.Name == name })
	if i < 0 {
		return Model{}, false
	}
	return v.models()[i], true
}

func (v Vocabulary) modelNames() []string {
	var names []string
	for _, m := range v.models() {
		names = append(names, m.Name)
	}
	return names
}

// quirkNames are the quirks that mean something to a driver; every driver's if
// it is "".
func quirkNames(driver string) []string {
	var names []string
	for _, q := range framework.Quirks() {
		if driver == "" || q.For(driver) {
			names = append(names, q.Name)
		}
	}
	return names
}
