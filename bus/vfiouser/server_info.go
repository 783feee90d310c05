package vfiouser

import (
	"golang.org/x/sys/unix"

	"nicd/bus"
	"nicd/bus/internal/vfiocap"
)

func (s *server) getInfo(r *request) error {
	if _, err := parseDeviceInfo(r.body); err != nil {
		return err
	}
	flags := devicePCI
	if s.info.CanReset {
		flags |= deviceReset
	}
	r.out = deviceInfo{flags: flags, regions: numRegions, irqs: numIRQs}.append(r.out)
	return nil
}

func (s *server) getRegionInfo(r *request) error {
	q, err := vfiocap.Parse(r.body)
	if err != nil {
		return err
	}
	if q.Index >= numRegions {
		return unix.EINVAL
	}
	info := vfiocap.Info{Argsz: vfiocap.InfoSize, Index: q.Index, Size: uint64(s.regionSize(q.Index))}
	if info.Size > 0 {
		info.Flags = vfiocap.Read | vfiocap.Write
	}
	r.out = info.Append(r.out)
	return nil
}

// regionSize is 0 for a region that is absent.
func (s *server) regionSize(index uint32) int {
	switch {
	case index == bus.ConfigSpace:
		return s.configSize
	case index < bus.ConfigSpace && s.regions[index] != nil:
		return s.regions[index].Size()
	}
	return 0
}

// getRegionIOFDs gives out the region's doorbells: one entry a register, all
// with the same page and eventfd. Entries that do not fit the size that the
// client allows are left out, and so are their descriptors; argsz tells it what
// to ask for.
func (s *server) getRegionIOFDs(r *request) error {
	q, err := parseIOFDs(r.body)
	if err != nil {
		return err
	}
	if q.index >= numRegions || q.flags != 0 {
		return unix.EINVAL
	}
	entries := s.shadowFDs(int(q.index))
	reply := ioFDs{
		argsz: uint32(ioFDsSize + len(entries)*shadowFDSize),
		index: q.index,
		count: uint32(len(entries)),
	}
	r.out = reply.append(r.out)
	if len(entries) == 0 || q.argsz < reply.argsz {
		return nil
	}
	for _, e := range entries {
		r.out = e.append(r.out)
	}
	r.outFDs = []int{int(s.bells.Event().File().Fd()), int(s.bells.Memory().File().Fd())}
	return nil
}

// Where shadowFDs' entries find their descriptors in the reply.
const (
	doorbellEventFD  = 0
	doorbellMemoryFD = 1
)

func (s *server) shadowFDs(region int) []shadowFD {
	if s.bells == nil || region >= bus.ConfigSpace || s.regions[region] == nil {
		return nil
	}
	base := uint64(s.bells.Memory().FileOffset()) + bus.DoorbellOffset
	var entries []shadowFD
	for _, d := range s.bellRanges {
		if d.Region != region {
			continue
		}
		for i := range d.Count {
			entries = append(entries, shadowFD{
				offset:       uint64(d.Offset) + uint64(i)*uint64(d.Stride),
				size:         4,
				eventFD:      doorbellEventFD,
				kind:         kindShadowIOEventFD,
				memoryFD:     doorbellMemoryFD,
				memoryOffset: base + 4*uint64(d.First+i),
			})
		}
	}
	return entries
}

// getIRQInfo says EVENTFD and nothing more: a client that is told NORESIZE
// (QEMU) takes all eventfds away to add one.
func (s *server) getIRQInfo(r *request) error {
	q, err := parseIRQInfo(r.body)
	if err != nil {
		return err
	}
	// An index that does not exist has no vectors; cloud-hypervisor would wait
	// for ever for the body of an error.
	r.out = irqInfo{flags: irqEventFD, index: q.index, count: uint32(s.vectors(q.index))}.append(r.out)
	return nil
}

// vectors is how many there are of an IRQ index.
func (s *server) vectors(index uint32) int {
	switch {
	case int(index) < len(s.info.Vectors):
		return s.info.Vectors[index]
	case index == irqError || index == irqRequest:
		return 1
	}
	return 0
}
