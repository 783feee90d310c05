package vmxnet3_test

import (
	"testing"

	"nicd/drivers/internal/rig"
	"nicd/drivers/vmxnet3"
	model "nicd/sim/vmxnet3"
)

// These tests run the driver on the device model. What needs a hand on every
// completion is in queue_test.go.

// start runs the driver on a model.
func start(t testing.TB, m model.Options, opt rig.NetOptions) (*rig.Net, *model.Model) {
	t.Helper()
	dev := model.New(m)
	return rig.NewNet(t, vmxnet3.New(), dev, opt), dev
}

// TestSuite runs what holds for each driver, on each revision.
func TestSuite(t *testing.T) {
	for _, revision := range []int{1, 2, 3, 4} {
		t.Run([]string{"", "rev1", "rev2", "rev3", "rev4"}[revision], func(t *testing.T) {
			rig.Suite(t, func(t *testing.T, opt rig.NetOptions) *rig.Net {
				n, _ := start(t, model.Options{Revision: revision}, opt)
				return n
			})
		})
	}
}
