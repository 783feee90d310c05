// Package vfiocap reads the description of a register region that VFIO's ioctl
// (linux/vfio.h, VFIO_DEVICE_GET_REGION_INFO) and vfio-user's message share:
// which parts of the region may be mapped. How the description is fetched
// belongs to the buses.
package vfiocap

import (
	"encoding/binary"
	"errors"
	"fmt"
)

var host = binary.NativeEndian

// Info is struct vfio_region_info: argsz u32, flags u32, index u32, cap_offset
// u32, size u64, offset u64. Capabilities may follow it.
type Info struct {
	// Size of the whole description with its capabilities. An answer that is
	// shorter has none.
	Argsz     uint32
	Flags     uint32
	Index     uint32
	CapOffset uint32 // from the start of the struct
	Size      uint64 // of the region
	Offset    uint64 // of the region in the descriptor
}

// InfoSize is the length of the struct without capabilities.
const InfoSize = 32

// Flags of a region.
const (
	Read  uint32 = 1 << 0
	Write uint32 = 1 << 1
	Mmap  uint32 = 1 << 2 // some of it may be mapped
	Caps  uint32 = 1 << 3 // capabilities follow
)

// MaxSize bounds a description that is worth asking for.
const MaxSize = 4096

// ErrShort: a description is shorter than its layout, or its Argsz is.
var ErrShort = errors.New("region description too short")

// Append appends the struct to b.
func (i Info) Append(b []byte) []byte {
	b = host.AppendUint32(b, i.Argsz)
	b = host.AppendUint32(b, i.Flags)
	b = host.AppendUint32(b, i.Index)
	b = host.AppendUint32(b, i.CapOffset)
	b = host.AppendUint64(b, i.Size)
	return host.AppendUint64(b, i.Offset)
}

// Parse reads the struct at the start of b.
func Parse(b []byte) (Info, error) {
	if len(b) < InfoSize || host.Uint32(b) < InfoSize {
		return Info{}, ErrShort
	}
	return Info{
		Argsz:     host.Uint32(b),
		Flags:     host.Uint32(b[4:]),
		Index:     host.Uint32(b[8:]),
		CapOffset: host.Uint32(b[12:]),
		Size:      host.Uint64(b[16:]),
		Offset:    host.Uint64(b[24:]),
	}, nil
}

// Area is a part of a region that may be mapped.
type Area struct {
	Offset, Size uint64
}

// A capability begins with id u16, version u16, next u32 (from the start of the
// region's struct, 0 for the last). The sparse mmap capability goes on with the
// number of areas u32, reserved u32, and the areas.
const (
	capHeaderSize = 8
	capNext       = 4

	capSparse     = 1
	sparseCount   = 8
	sparseSize    = 16
	sparseAreaLen = 16
	maxAreas      = 64
)

// Areas returns what may be mapped of the region that b describes and info is
// the start of. A region that may be mapped but names no areas may be mapped as
// a whole.
func Areas(b []byte, info Info) ([]Area, error) {
	if info.Flags&Mmap == 0 {
		return nil, nil
	}
	whole := []Area{{0, info.Size}}
	if info.Flags&Caps == 0 {
		return whole, nil
	}
	for at := info.CapOffset; at != 0; {
		if uint64(at)+capHeaderSize > uint64(len(b)) || at < InfoSize {
			return nil, fmt.Errorf("region capability at %d of %d bytes", at, len(b))
		}
		if host.Uint16(b[at:]) == capSparse {
			return sparse(b[at:], info)
		}
		next := host.Uint32(b[at+capNext:])
		if next != 0 && next <= at {
			return nil, errors.New("region capabilities run in a circle")
		}
		at = next
	}
	return whole, nil
}

func sparse(b []byte, info Info) ([]Area, error) {
	if len(b) < sparseSize {
		return nil, ErrShort
	}
	n := host.Uint32(b[sparseCount:])
	if n > maxAreas || len(b) < sparseSize+int(n)*sparseAreaLen {
		return nil, fmt.Errorf("%d mappable areas in %d bytes", n, len(b))
	}
	areas := make([]Area, n)
	for i := range areas {
		e := b[sparseSize+i*sparseAreaLen:]
		a := Area{host.Uint64(e), host.Uint64(e[8:])}
		if a.Size == 0 || a.Offset > info.Size || a.Size > info.Size-a.Offset {
			return nil, fmt.Errorf("mappable area %#x+%#x in a region of %#x bytes", a.Offset, a.Size, info.Size)
		}
		areas[i] = a
	}
	return areas, nil
}
