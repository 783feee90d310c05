package plugin

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"nicd/bus"
	"nicd/framework/link"
	"nicd/proto/driverpb"
)

// attachment is what a plugin got to drive an interface. It owns everything in
// it.
type attachment struct {
	name       string
	device     *os.File // a vfio-user socket; whoever uses it takes it over
	arena      *bus.Memory
	events     link.Events
	generation uint32
	quirks     map[string]string
}

// Descriptors of an attach, in order; events follow.
const (
	fdDevice = iota
	fdArena
	numFixed
)

// openAttachment makes an attachment of an Attach's descriptors, which it takes
// over.
func openAttachment(r *driverpb.AttachRequest, fds []int) (*attachment, error) {
	if r.GetBus() != driverpb.BusKind_BUS_VFIO_USER || len(fds) < numFixed+2 || (len(fds)-numFixed)%2 != 0 {
		closeAll(fds)
		return nil, fmt.Errorf("attach %s: bus %v with %d descriptors", r.GetName(), r.GetBus(), len(fds))
	}
	arena, err := bus.OpenMemory(os.NewFile(uintptr(fds[fdArena]), "arena"))
	if err != nil {
		closeAll(fds[:fdArena])
		closeAll(fds[numFixed:])
		return nil, fmt.Errorf("attach %s: arena: %w", r.GetName(), err)
	}
	return &attachment{
		name: r.GetName(), device: os.NewFile(uintptr(fds[fdDevice]), r.GetName()), arena: arena, events: link.EventsOf(fds[numFixed:]),
		generation: r.GetGeneration(), quirks: r.GetQuirks(),
	}, nil
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
