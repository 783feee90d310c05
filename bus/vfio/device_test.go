package vfio

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nicd/bus"
	"nicd/bus/internal/vfiocap"
)

func newFile(t *testing.T, size int64) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "device"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	return f
}

// A region of which the second page is mapped is one region.
func TestRegionMappedInPart(t *testing.T) {
	page := os.Getpagesize()
	f := newFile(t, int64(4*page))
	r := &region{device: &Device{}, window: window{f, int64(page), 3 * page}}
	if err := r.mapAreas([]vfiocap.Area{{Offset: uint64(page), Size: uint64(page)}, {Offset: 16, Size: 16}}); err != nil {
		t.Fatal(err)
	}
	if len(r.areas) != 1 {
		t.Fatalf("%d areas, want the one of a page", len(r.areas))
	}
	var b [4]byte
	for i, offset := range []int{0, page - 4, page, 2*page - 4, 2 * page, 3*page - 4} {
		value := uint32(0x01020304 * (i + 1))
		r.Write32(uint32(offset), value)
		if got := r.Read32(uint32(offset)); got != value {
			t.Errorf("register %#x reads %#x, want %#x", offset, got, value)
		}
		if _, err := f.ReadAt(b[:], int64(page+offset)); err != nil || b[0] != byte(value) {
			t.Errorf("the file has %x at %#x, %v", b, offset, err)
		}
	}
	for _, offset := range []uint32{uint32(3 * page), 2, ^uint32(3)} {
		r.Write32(offset, 1)
		if got := r.Read32(offset); got != bus.Gone {
			t.Errorf("register %#x reads %#x", offset, got)
		}
	}
	r.device.closed.Store(true)
	r.unmap()
	if got := r.Read32(uint32(page)); got != bus.Gone {
		t.Errorf("a register of a closed device reads %#x", got)
	}
}

func TestWindowWidths(t *testing.T) {
	f := newFile(t, 4096)
	w := window{f, 1024, 256}
	for _, size := range []int{1, 2, 4} {
		if err := w.write(0x40, size, 0xa1b2c3d4); err != nil {
			t.Fatal(err)
		}
		want := uint32(0xa1b2c3d4) & allOnes(size)
		if got, err := w.read(0x40, size); got != want || err != nil {
			t.Errorf("%d bytes: %#x, %v; want %#x", size, got, err, want)
		}
	}
	if got, err := w.read(0x44, 4); got != 0 || err != nil {
		t.Errorf("its neighbour is %#x, %v", got, err)
	}
}

// What is not a VFIO device is refused, and its descriptors are closed.
func TestNewRefuses(t *testing.T) {
	h := &Handle{Address: nic, Device: newFile(t, 0), IOMMU: newFile(t, 0)}
	if _, err := New(h); err == nil || !strings.Contains(err.Error(), nic) {
		t.Errorf("New = %v", err)
	}
	for _, f := range []*os.File{h.Device, h.IOMMU} {
		if f.Close() == nil {
			t.Errorf("%s is open still", f.Name())
		}
	}
}
