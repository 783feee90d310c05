package bus

import (
	"errors"
	"fmt"
	"time"
)

// Configuration space, as far as every driver needs it.
const (
	configCommand = 0x04
	commandIO     = 1 << 0
	commandMemory = 1 << 1
	commandMaster = 1 << 2

	configStatus       = 0x06
	statusCapabilities = 1 << 4
	configCapabilities = 0x34

	configBAR0 = 0x10
	barIO      = 1 << 0 // I/O ports, not memory
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

// IORegion is the function's first region of I/O ports that the bus reaches. The
// error is ErrNoRegion if there is none.
func IORegion(d Device) (Region, error) {
	for i := BAR0; i <= BAR5; i++ {
		low, err := d.ReadConfig(configBAR0+4*i, 4)
		if err != nil {
			return nil, err
		}
		if low&barIO == 0 {
			continue
		}
		r, err := d.Region(i)
		if !errors.Is(err, ErrNoRegion) && !errors.Is(err, ErrUnsupported) {
			return r, err
		}
	}
	return nil, fmt.Errorf("I/O ports: %w", ErrNoRegion)
}

// Capabilities are the offsets of d's PCI capabilities of a kind (05h is MSI, 11h
// MSI-X, 09h vendor-specific), in the order of their list. A list that loops or
// leads outside ends where it does.
func Capabilities(d Device, kind uint8) (at []int, err error) {
	status, err := d.ReadConfig(configStatus, 2)
	if err != nil || status&statusCapabilities == 0 {
		return nil, err
	}
	const most = 48 // that fit in 192 bytes
	next := uint32(configCapabilities)
	for range most {
		if next, err = d.ReadConfig(int(next), 1); err != nil {
			return nil, err
		}
		if next &^= 3; next < firstCapability {
			return at, nil
		}
		id, err := d.ReadConfig(int(next), 1)
		if err != nil {
			return nil, err
		}
		if id == uint32(kind) {
			at = append(at, int(next))
		}
		next++
	}
	return at, nil
}

// firstCapability is where capabilities begin: behind the header.
const firstCapability = 0x40

// pollEvery is how often Await looks.
const pollEvery = 20 * time.Microsecond

// Await waits until the bits of a register that are in mask equal want, for at most
// limit, and returns what it read last. It ends at once when the device is gone,
// with ErrGone; else the error is ErrTimeout. It sleeps: it is for the control path.
func Await(r Region, offset, mask, want uint32, limit time.Duration) (value uint32, err error) {
	ended := Until(limit, func() bool {
		value = r.Read32(offset)
		return value&mask == want || value == Gone
	})
	switch {
	case value == Gone:
		return value, ErrGone
	case !ended:
		return value, fmt.Errorf("register %#x is %#x: %w", offset, value, ErrTimeout)
	}
	return value, nil
}

// Until calls done until it is true, for at most limit, and tells whether it was: a
// wait for a narrow register, or for a word of memory that the device writes. It
// looks at least once, sleeps in between and is for the control path. Nobody writes
// memory for a device that is gone: done has to look whether it is.
func Until(limit time.Duration, done func() bool) bool {
	for end := time.Now().Add(limit); ; time.Sleep(pollEvery) {
		if done() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}
