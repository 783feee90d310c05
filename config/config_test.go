package config

import (
	"testing"

	"nicd/framework"
)

var testVocabulary = Vocabulary{Drivers: []string{"vmxnet3", "e1000"}}

func TestDefault(t *testing.T) {
	c, err := Default(testVocabulary)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Interfaces) != 2 || len(c.Streams) != 2 || len(c.Drivers) != 2 || len(c.Wires) != 1 {
		t.Fatalf("%+v", c)
	}
	vmx, _ := c.Interface("vmx0")
	if vmx.Device.Sim.Revision != 3 || vmx.RxQueues != 4 || vmx.TxQueues != 4 || vmx.Interrupts != MSIX {
		t.Errorf("vmx0: %+v", vmx)
	}
	em, _ := c.Interface("em0")
	if em.Device.Sim.MAC == vmx.Device.Sim.MAC || em.Device.Sim.MAC == (framework.MAC{}) {
		t.Errorf("addresses %v and %v", em.Device.Sim.MAC, vmx.Device.Sim.MAC)
	}
	if em.MTU != 1500 || em.Interrupts != AutoInterrupts || c.Daemon.LogLevel != "info" || !c.Wires[0].FlowControl {
		t.Errorf("defaults: %+v", em)
	}
}
