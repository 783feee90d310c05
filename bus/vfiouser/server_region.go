package vfiouser

import (
	"fmt"

	"golang.org/x/sys/unix"

	"nicd/bus"
)

// checkAccess tells whether an access names a region and keeps to both sides'
// limits. Whether it keeps to the region's size is another matter: beyond it
// reads are all ones and writes are lost, as on PCI, because cloud-hypervisor
// waits for ever for the body of an error.
func (s *server) checkAccess(a regionAccess) error {
	if a.region >= numRegions || a.count > min(maxTransfer, s.peer.transfer) {
		return unix.EINVAL
	}
	if a.offset+uint64(a.count) < a.offset {
		return unix.EINVAL
	}
	return nil
}

func (s *server) regionRead(r *request) error {
	a, err := parseRegionAccess(r.body)
	if err != nil {
		return err
	}
	if err := s.checkAccess(a); err != nil {
		return err
	}
	r.out = a.append(r.out)
	n := len(r.out)
	r.out = append(r.out, make([]byte, a.count)...)
	s.read(a, r.out[n:])
	return nil
}

func (s *server) regionWrite(r *request) error {
	a, err := parseRegionAccess(r.body)
	if err != nil {
		return err
	}
	data := r.body[regionAccessSize:]
	if uint64(len(data)) != uint64(a.count) {
		return unix.EINVAL
	}
	if err := s.checkAccess(a); err != nil {
		return err
	}
	r.out = a.append(r.out)
	return s.write(a, data)
}

func (s *server) regionWriteMany(r *request) error {
	if len(r.body) < writeManySize {
		return errShort
	}
	n, entries := host.Uint64(r.body), r.body[writeManySize:]
	if len(entries)%writeManyEntrySize != 0 || n != uint64(len(entries)/writeManyEntrySize) {
		return unix.EINVAL
	}
	for ; len(entries) > 0; entries = entries[writeManyEntrySize:] {
		a, err := parseRegionAccess(entries)
		if err != nil {
			return err
		}
		if a.count > writeManyDataSize {
			return unix.EINVAL
		}
		if err := s.checkAccess(a); err != nil {
			return err
		}
		if err := s.write(a, entries[regionAccessSize:][:a.count]); err != nil {
			return err
		}
	}
	r.out = host.AppendUint64(r.out, n)
	return nil
}

// read fills data, which is as long as the access, from the region.
func (s *server) read(a regionAccess, data []byte) {
	for i := range data {
		data[i] = 0xff
	}
	data = data[:s.inside(a)]
	if a.region == bus.ConfigSpace {
		s.readConfig(int(a.offset), data)
		return
	}
	for len(data) > 0 {
		data, a.offset = readRegister(s.regions[a.region], a.offset, data)
	}
}

// inside is how many of the access's bytes lie in the region.
func (s *server) inside(a regionAccess) int {
	size := uint64(s.regionSize(a.region))
	if a.offset >= size {
		return 0
	}
	return int(min(uint64(a.count), size-a.offset))
}

// readRegister reads the first register of data, which is at offset: all of it,
// mostly.
func readRegister(r bus.Region, offset uint64, data []byte) ([]byte, uint64) {
	n := naturalWidth(int(offset), len(data))
	putWidth(data[:n], r.Read(uint32(offset), n))
	return data[n:], offset + uint64(n)
}

func (s *server) readConfig(offset int, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(data) > 0 {
		n := naturalWidth(offset, len(data))
		v, err := s.dev.ReadConfig(offset, n)
		if err != nil {
			s.o.report(fmt.Errorf("read configuration space at %#x: %w", offset, err))
			v = bus.Gone
		}
		putWidth(data[:n], v)
		data, offset = data[n:], offset+n
	}
}

// write carries out a write, one for each register if it is of several.
func (s *server) write(a regionAccess, data []byte) error {
	data = data[:s.inside(a)]
	if a.region == bus.ConfigSpace {
		return s.writeConfig(int(a.offset), data)
	}
	for len(data) > 0 {
		n := naturalWidth(int(a.offset), len(data))
		s.regions[a.region].Write(uint32(a.offset), n, getWidth(data[:n]))
		data, a.offset = data[n:], a.offset+uint64(n)
	}
	return nil
}

func (s *server) writeConfig(offset int, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(data) > 0 {
		n := naturalWidth(offset, len(data))
		if err := s.dev.WriteConfig(offset, n, getWidth(data[:n])); err != nil {
			return err
		}
		data, offset = data[n:], offset+n
	}
	return nil
}

// naturalWidth is the widest of 4, 2 and 1 that n bytes at offset begin with.
func naturalWidth(offset, n int) int {
	switch {
	case offset&3 == 0 && n >= 4:
		return 4
	case offset&1 == 0 && n >= 2:
		return 2
	}
	return 1
}

// putWidth and getWidth move a value of 1, 2 or 4 bytes.
func putWidth(b []byte, v uint32) {
	switch len(b) {
	case 1:
		b[0] = byte(v)
	case 2:
		host.PutUint16(b, uint16(v))
	case 4:
		host.PutUint32(b, v)
	}
}

func getWidth(b []byte) uint32 {
	switch len(b) {
	case 1:
		return uint32(b[0])
	case 2:
		return uint32(host.Uint16(b))
	}
	return host.Uint32(b)
}
