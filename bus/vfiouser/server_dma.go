package vfiouser

import (
	"errors"
	"math"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"nicd/bus"
)

// dmaTable is what a client has mapped.
type dmaTable struct {
	dev           bus.Device
	requireSealed bool
	maps          []mapping
}

// mapping is one range. Without a file the device can't access it, and mem is
// nil; so it is for a range that the client does not let the device write.
type mapping struct {
	dmaMap
	file fileID
	mem  *bus.Memory
}

func (s *server) dmaMap(r *request) error {
	m, err := parseDMAMap(r.body)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dma.add(m, r.fds)
}

func (s *server) dmaUnmap(r *request) error {
	u, err := parseDMAUnmap(r.body)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.dma.remove(u); err != nil {
		return err
	}
	r.out = u.append(r.out)
	return nil
}

func (t *dmaTable) add(m dmaMap, fds descriptors) error {
	if err := m.check(len(fds)); err != nil {
		return err
	}
	entry := mapping{dmaMap: m}
	if len(fds) == 1 {
		id, err := statID(fds[0])
		if err != nil {
			return err
		}
		entry.file = id
	}
	if i := t.overlap(m); i >= 0 {
		if old := t.maps[i]; old.dmaMap == entry.dmaMap && old.file == entry.file {
			return nil
		}
		return unix.EEXIST
	}
	if len(t.maps) >= maxMaps {
		return unix.ENOSPC
	}
	if len(fds) == 1 && m.flags == dmaRead|dmaWrite {
		mem, err := t.open(m, fds.takeFile(0, "DMA memory"))
		if err != nil {
			return err
		}
		entry.mem = mem
	}
	t.maps = append(t.maps, entry)
	return nil
}

// check tells whether a map request makes sense by itself.
func (m dmaMap) check(fds int) error {
	switch {
	case fds > 1, m.flags == 0, m.flags&^(dmaRead|dmaWrite) != 0:
		return unix.EINVAL
	case m.size == 0, m.addr+(m.size-1) < m.addr, m.size > math.MaxInt, m.offset > math.MaxInt64:
		return unix.EINVAL
	case (m.addr|m.size|m.offset)%pageSize != 0:
		return unix.EINVAL
	}
	return nil
}

// overlap is the index of a mapping that shares an address with m, or -1.
func (t *dmaTable) overlap(m dmaMap) int {
	return slices.IndexFunc(t.maps, func(o mapping) bool {
		return m.addr <= o.addr+(o.size-1) && o.addr <= m.addr+(m.size-1)
	})
}

// open maps the file, which it takes over, and shows it to the device.
func (t *dmaTable) open(m dmaMap, file *os.File) (*bus.Memory, error) {
	if t.requireSealed && !bus.Sealed(file) {
		file.Close()
		return nil, unix.EPERM
	}
	mem, err := bus.OpenMemoryAt(file, int64(m.offset), int(m.size))
	if err != nil {
		return nil, unix.EINVAL
	}
	if err := t.dev.MapDMA(mem, m.addr); err != nil {
		mem.Close()
		return nil, err
	}
	return mem, nil
}

// remove takes back the mapping that equals the request, or all of them.
func (t *dmaTable) remove(u dmaUnmap) error {
	if u.flags == unmapAll && u.addr == 0 && u.size == 0 {
		t.end()
		return nil
	}
	if u.flags != 0 {
		return unix.EINVAL
	}
	i := slices.IndexFunc(t.maps, func(o mapping) bool { return o.addr == u.addr && o.size == u.size })
	if i < 0 {
		return unix.ENOENT
	}
	if err := t.close(t.maps[i]); err != nil {
		return err
	}
	t.maps = slices.Delete(t.maps, i, i+1)
	return nil
}

// close ends the device's use of a mapping and then the mapping. A device that
// is gone, or about to be, has none or will drop it by itself: what it refers to
// until then stays mapped.
func (t *dmaTable) close(m mapping) error {
	if m.mem == nil {
		return nil
	}
	err := t.dev.UnmapDMA(m.mem)
	if errors.Is(err, bus.ErrGone) {
		m.mem.Abandon()
		return nil
	}
	if err != nil {
		return err
	}
	return m.mem.Close()
}

func (t *dmaTable) end() {
	for _, m := range t.maps {
		if t.close(m) != nil {
			m.mem.Abandon() // the device won't let go of it
		}
	}
	t.maps = nil
}
