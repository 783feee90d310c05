package plugin

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"nicd/bus"
	"nicd/bus/vfio"
	"nicd/framework/link"
	"nicd/proto/driverpb"
)

// attachment is what a plugin got to drive an interface. It owns everything in
// it.
type attachment struct {
	name       string
	device     *os.File     // a vfio-user socket; whoever uses it takes it over
	vfio       *vfio.Handle // or this; likewise
	arena      *bus.Memory
	events     link.Events
	generation uint32
	quirks     map[string]string
}

// Descriptors of an attach, in order. VFIO's own and the events follow.
const (
	fdDevice = iota
	fdArena
	numFixed
)

// openAttachment makes an attachment of an Attach's descriptors, which it takes
// over.
func openAttachment(r *driverpb.AttachRequest, fds []int) (*attachment, error) {
	own := ownDescriptors(r)
	if own < 0 || len(fds) < own+2 || (len(fds)-own)%2 != 0 {
		closeAll(fds)
		return nil, fmt.Errorf("attach %s: bus %v with %d descriptors", r.GetName(), r.GetBus(), len(fds))
	}
	arena, err := bus.OpenMemory(os.NewFile(uintptr(fds[fdArena]), "arena"))
	if err != nil {
		closeAll(fds[:fdArena])
		closeAll(fds[numFixed:])
		return nil, fmt.Errorf("attach %s: arena: %w", r.GetName(), err)
	}
	a := &attachment{
		name: r.GetName(), arena: arena, events: link.EventsOf(fds[own:]),
		generation: r.GetGeneration(), quirks: r.GetQuirks(),
	}
	if device := os.NewFile(uintptr(fds[fdDevice]), r.GetName()); r.GetBus() == driverpb.BusKind_BUS_VFIO {
		a.vfio = handleOf(r.GetVfio(), device, fds[numFixed:own])
	} else {
		a.device = device
	}
	return a, nil
}

// ownDescriptors is how many descriptors come before the events, -1 for an
// unknown bus.
func ownDescriptors(r *driverpb.AttachRequest) int {
	switch {
	case r.GetBus() == driverpb.BusKind_BUS_VFIO_USER:
		return numFixed
	case r.GetBus() == driverpb.BusKind_BUS_VFIO && r.GetVfio().GetGroup():
		return numFixed + 2
	case r.GetBus() == driverpb.BusKind_BUS_VFIO:
		return numFixed + 1
	}
	return -1
}

// handleOf is the handle of a device and the rest of its descriptors.
func handleOf(v *driverpb.VFIO, device *os.File, fds []int) *vfio.Handle {
	h := &vfio.Handle{
		Address: v.GetAddress(), IOAS: v.GetIoas(), Device: device, IOMMU: os.NewFile(uintptr(fds[0]), "iommu"),
		NoIOMMU: v.GetNoIommu(), DMABase: v.GetDmaBase(), DMASize: v.GetDmaSize(),
	}
	if v.GetGroup() {
		h.Group = os.NewFile(uintptr(fds[1]), "group")
	}
	return h
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// close gives back the arena and the events. Nothing uses them any more.
func (a *attachment) close() {
	a.events.Close()
	a.arena.Close()
}
