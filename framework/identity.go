package framework

import (
	"fmt"

	"nicd/bus"
)

// Identify finds a device among those that a driver drives: the index of its PCI
// identity in ids, or ErrNotOurs.
func Identify(info bus.Info, ids []DeviceID) (int, error) {
	for i, id := range ids {
		if id.Vendor == info.Vendor && id.Device == info.Device {
			return i, nil
		}
	}
	return 0, fmt.Errorf("%w: %04x:%04x", ErrNotOurs, info.Vendor, info.Device)
}
