package framework

import (
	"errors"
	"testing"

	"nicd/bus"
)

func TestIdentify(t *testing.T) {
	ids := []DeviceID{{Vendor: 1, Device: 2}, {Vendor: 1, Device: 3}, {Vendor: 4, Device: 3}}
	for i, id := range ids {
		if got, err := Identify(bus.Info{Vendor: id.Vendor, Device: id.Device}, ids); got != i || err != nil {
			t.Errorf("%+v: %d, %v", id, got, err)
		}
	}
	_, err := Identify(bus.Info{Vendor: 4, Device: 2}, ids)
	if !errors.Is(err, ErrNotOurs) || err.Error() != ErrNotOurs.Error()+": 0004:0002" {
		t.Errorf("%v", err)
	}
}
