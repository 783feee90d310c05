package plugin

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"nicd/bus"
	"nicd/bus/vfio"
	"nicd/framework/link"
	"nicd/proto/driverpb"
)

// named is a descriptor that can be told from others: a memfd of so many bytes.
func named(t *testing.T, size int) *os.File {
	t.Helper()
	m, err := bus.NewMemory("named", size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m.File()
}

func sizeOf(t *testing.T, f *os.File) int64 {
	t.Helper()
	if f == nil {
		return 0
	}
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return st.Size()
}

// duplicates are what would arrive in the plugin.
func duplicates(t *testing.T, files []*os.File) []int {
	t.Helper()
	var fds []int
	for _, f := range files {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
	}
	return fds
}

// What nicd sends of a PCI device is what the plugin opens, each descriptor in
// its place.
func TestVFIOAttachment(t *testing.T) {
	events, err := link.NewEvents(2)
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	memory, err := bus.NewMemory("arena", 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	for _, group := range []*os.File{nil, named(t, 3<<12)} {
		c := AttachConfig{Name: "vmx0", Memory: memory, Events: events, Generation: 7, VFIO: &vfio.Handle{
			Address: "0000:03:00.0", IOAS: 5, Device: named(t, 1<<12), IOMMU: named(t, 2<<12), Group: group,
			NoIOMMU: group != nil, DMABase: 3 << 30, DMASize: 1 << 21,
		}}
		request, files := c.request()
		a, err := openAttachment(request, duplicates(t, files))
		if err != nil {
			t.Fatal(err)
		}
		h := a.vfio
		if a.device != nil || h == nil || h.Address != "0000:03:00.0" || h.IOAS != 5 || a.generation != 7 || len(a.events.Host) != 2 || len(a.events.Engine) != 2 {
			t.Errorf("attachment %+v, handle %+v", a, h)
		}
		if h.NoIOMMU != (group != nil) || h.DMABase != 3<<30 || h.DMASize != 1<<21 {
			t.Errorf("without an IOMMU %v, memory at %#x+%#x", h.NoIOMMU, h.DMABase, h.DMASize)
		}
		if sizeOf(t, h.Device) != 1<<12 || sizeOf(t, h.IOMMU) != 2<<12 || sizeOf(t, h.Group) != sizeOf(t, group) || a.arena.Size() != 1<<16 {
			t.Error("descriptors in each other's places")
		}
		h.Close()
		a.close()
		for n := range len(files) - 4 { // too few, or events without their pairs
			if a, err := openAttachment(request, duplicates(t, files[:n])); err == nil {
				t.Errorf("%d descriptors were taken: %+v", n, a)
			}
		}
	}
	if _, err := openAttachment(&driverpb.AttachRequest{Bus: 9}, nil); err == nil {
		t.Error("an unknown bus was taken")
	}
}
