package vfio

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestSideBySide(t *testing.T) {
	const page = 0x200000
	for name, c := range map[string]struct {
		at   []uint64
		n    int
		want []int
	}{
		"none":               {nil, 1, nil},
		"one":                {[]uint64{5 * page}, 1, []int{0}},
		"too few":            {[]uint64{5 * page}, 2, nil},
		"upwards":            {[]uint64{5 * page, 6 * page, 7 * page}, 3, []int{0, 1, 2}},
		"downwards":          {[]uint64{7 * page, 6 * page, 5 * page}, 3, []int{2, 1, 0}},
		"with a gap":         {[]uint64{5 * page, 6 * page, 8 * page, 9 * page}, 3, nil},
		"after a gap":        {[]uint64{9 * page, 1 * page, 8 * page, 3 * page, 10 * page}, 3, []int{2, 0, 4}},
		"the first that fit": {[]uint64{9 * page, 1 * page, 8 * page, 2 * page, 0}, 2, []int{4, 1}},
		"not quite":          {[]uint64{0, page + 4096, 2 * page}, 2, nil},
	} {
		if got := sideBySide(c.at, page, c.n); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// The pools are what sysfs says, less what somebody has reserved.
func TestHugePools(t *testing.T) {
	tr, h := newTree(t)
	if _, _, err := h.NewContiguous("arena", 1); !errors.Is(err, ErrNotContiguous) {
		t.Errorf("a kernel without huge pages: %v", err)
	}
	for name, content := range map[string]string{
		"1048576kB/free_hugepages": "0\n", "1048576kB/resv_hugepages": "0\n",
		"2048kB/free_hugepages": "7\n", "2048kB/resv_hugepages": "2\n",
	} {
		tr.file("sys/kernel/mm/hugepages/hugepages-"+name, content)
	}
	got, err := h.hugePools()
	if want := []hugePool{{2 << 20, 5}, {1 << 30, 0}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("pools %v, %v", got, err)
	}
	_, _, err = h.NewContiguous("arena", 11<<20)
	if !errors.Is(err, ErrNotContiguous) {
		t.Fatalf("five pages of 2 MiB for 11 MiB: %v", err)
	}
	for _, says := range []string{"arena", "11 MiB", "5 huge pages of 2 MiB", "of 6", "0 huge pages of 1 GiB", "of 1", "vm.nr_hugepages"} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("%q does not say %q", err, says)
		}
	}
	tr.file("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "many\n")
	if _, _, err := h.NewContiguous("arena", 1); err == nil || !strings.Contains(err.Error(), "free_hugepages") {
		t.Errorf("nonsense in sysfs: %v", err)
	}
}

// Contiguous memory of this machine's pool, where somebody has filled it; the
// guest's test fills its own.
func TestNewContiguous(t *testing.T) {
	const size = 5 << 20
	m, at, err := Host{}.NewContiguous("test", size)
	if errors.Is(err, ErrNotContiguous) || errors.Is(err, errNoFrame) || errors.Is(err, os.ErrPermission) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	pages, err := physicalPages(m.Bytes(), os.Getpagesize())
	if err != nil {
		t.Fatal(err)
	}
	if m.Size() < size || pages[0] != at {
		t.Errorf("%d bytes at %#x, said to be at %#x", m.Size(), pages[0], at)
	}
	for i, p := range pages {
		if want := at + uint64(i*os.Getpagesize()); p != want {
			t.Fatalf("page %d is at %#x, want %#x", i, p, want)
		}
	}
	if b := m.Bytes(); slices.Max(b[:4096]) != 0 {
		t.Error("the memory is not zero")
	}
}
