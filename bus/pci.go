package bus

// Bits of the command register in configuration space.
const (
	configCommand = 4
	commandIO     = 1 << 0
	commandMemory = 1 << 1
	commandMaster = 1 << 2
)

// EnableMaster lets d answer register accesses and access memory by itself, as
// every driver needs before anything else. A reset of d takes it back.
func EnableMaster(d Device) error {
	command, err := d.ReadConfig(configCommand, 2)
	if err != nil {
		return err
	}
	return d.WriteConfig(configCommand, 2, command|commandIO|commandMemory|commandMaster)
}
