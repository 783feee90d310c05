package e1000_test

import (
	"testing"

	"nicd/drivers/e1000"
	"nicd/drivers/internal/rig"
	model "nicd/sim/e1000"
)

// These tests run the driver on the device models. What needs a hand on every
// descriptor is in queue_test.go.

// chips are the models, by name.
var chips = map[string]model.Kind{"82540EM": model.I82540EM, "82574L": model.I82574L}

// start runs the driver on a model.
func start(t testing.TB, m model.Options, opt rig.NetOptions) (*rig.Net, *model.Model) {
	t.Helper()
	dev := model.New(m)
	return rig.NewNet(t, e1000.New(), dev, opt), dev
}

// TestSuite runs what holds for each driver, on each chip.
func TestSuite(t *testing.T) {
	for name, kind := range chips {
		t.Run(name, func(t *testing.T) {
			rig.Suite(t, func(t *testing.T, opt rig.NetOptions) *rig.Net {
				n, _ := start(t, model.Options{Kind: kind}, opt)
				n.NoReceiveV6 = kind == model.I82540EM
				return n
			})
		})
	}
}
