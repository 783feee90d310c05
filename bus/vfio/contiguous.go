package vfio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"nicd/bus"
)

// ErrNotContiguous: there is no piece of physical memory of that size to be had.
var ErrNotContiguous = errors.New("no contiguous physical memory")

// taking serialises those who take from the kernel's pool.
var taking sync.Mutex

// NewContiguous makes shared memory of at least size bytes that is one piece of
// physical memory, and says where that begins. It is made of huge pages of the
// kernel's pool (hugetlb), which neither swapping nor compaction moves, and of
// the smallest of them that will do: either one holds all, or enough lie side by
// side.
//
// Calls wait for each other, lest each takes what another looks for. It takes
// CAP_SYS_ADMIN: nobody else is told physical addresses
// (Documentation/admin-guide/mm/pagemap.rst). For the time of the call it takes
// more of the pool than it keeps.
func (h Host) NewContiguous(name string, size int) (*bus.Memory, uint64, error) {
	taking.Lock()
	defer taking.Unlock()
	pools, err := h.hugePools()
	if err != nil {
		return nil, 0, err
	}
	if len(pools) == 0 {
		return nil, 0, fmt.Errorf("%w: the kernel has no huge pages", ErrNotContiguous)
	}
	var whys []string
	for _, p := range pools {
		need := (size + p.pageSize - 1) / p.pageSize
		if p.free < need {
			whys = append(whys, fmt.Sprintf("%d huge pages of %s are free, of %d", p.free, binaryUnits(p.pageSize), need))
			continue
		}
		m, at, err := p.contiguous(name, need)
		if err == nil {
			return m, at, nil
		}
		if !errors.Is(err, ErrNotContiguous) {
			return nil, 0, err
		}
		whys = append(whys, fmt.Sprintf("no %d huge pages of %s lie side by side", need, binaryUnits(p.pageSize)))
	}
	return nil, 0, fmt.Errorf("%w: %s for %s: %s (vm.nr_hugepages; right after boot the pool is in one piece)",
		ErrNotContiguous, name, binaryUnits(size), strings.Join(whys, ", "))
}

// hugePool is the kernel's pool of huge pages of one size.
type hugePool struct {
	pageSize int // bytes
	free     int // pages that nobody has, nor has reserved
}

// hugePools are the pools in order of page size.
func (h Host) hugePools() ([]hugePool, error) {
	dirs, err := filepath.Glob(h.sys("kernel", "mm", "hugepages", "hugepages-*kB"))
	if err != nil {
		return nil, err
	}
	var pools []hugePool
	for _, dir := range dirs {
		text := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(dir), "hugepages-"), "kB")
		kib, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
		free, err := readCount(filepath.Join(dir, "free_hugepages"))
		if err != nil {
			return nil, err
		}
		reserved, err := readCount(filepath.Join(dir, "resv_hugepages"))
		if err != nil {
			return nil, err
		}
		pools = append(pools, hugePool{kib << 10, max(0, free-reserved)})
	}
	slices.SortFunc(pools, func(a, b hugePool) int { return a.pageSize - b.pageSize })
	return pools, nil
}

func readCount(path string) (int, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return n, nil
}

// contiguous makes memory of so many pages side by side. The kernel does not say
// which page of its pool it will give, but gives the one first that came back
// last; so pages are taken into a file, twice as many each time, until enough of
// them lie side by side, and those go from that file to the memory's, one by one.
func (p hugePool) contiguous(name string, need int) (*bus.Memory, uint64, error) {
	taken, err := p.newFile(name + "-taken")
	if err != nil {
		return nil, 0, err
	}
	defer taken.Close()
	var run []int
	for have := need; ; have = min(2*have, p.free) {
		at, err := p.take(taken, have)
		if err != nil {
			return nil, 0, err
		}
		if run = sideBySide(at, uint64(p.pageSize), need); run != nil {
			break
		}
		if have >= p.free || len(at) < have {
			return nil, 0, ErrNotContiguous
		}
	}
	file, err := p.newFile(name)
	if err != nil {
		return nil, 0, err
	}
	if err := p.hand(taken, file, run); err != nil {
		file.Close()
		return nil, 0, err
	}
	if err := seal(file); err != nil {
		file.Close()
		return nil, 0, err
	}
	m, err := bus.OpenMemory(file)
	if err != nil {
		return nil, 0, err
	}
	// Somebody else may have been given one of the pages meanwhile.
	at, err := physicalPages(m.Bytes(), p.pageSize)
	if err == nil && sideBySide(at, uint64(p.pageSize), need) == nil || err == nil && !slices.IsSorted(at) {
		err = ErrNotContiguous
	}
	if err != nil {
		m.Close()
		return nil, 0, err
	}
	return m, at[0], nil
}

// newFile makes an empty file of huge pages. It may be sealed.
func (p hugePool) newFile(name string) (*os.File, error) {
	flags := unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING | unix.MFD_HUGETLB | bits.TrailingZeros(uint(p.pageSize))<<unix.MFD_HUGE_SHIFT
	fd, err := unix.MemfdCreate(name, flags)
	if err != nil {
		return nil, fmt.Errorf("memfd %s of huge pages: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// seal fixes the file's size, as bus.NewMemory does.
func seal(f *os.File) error {
	_, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	return err
}

// take makes the file have so many pages, or as many as there are, and says where
// in physical memory they are.
func (p hugePool) take(f *os.File, pages int) ([]uint64, error) {
	got := 0
	for ; got < pages; got++ {
		err := p.allocate(f, got)
		if errors.Is(err, unix.ENOSPC) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("huge page: %w", err)
		}
	}
	if got == 0 {
		return nil, ErrNotContiguous
	}
	b, err := unix.Mmap(int(f.Fd()), 0, got*p.pageSize, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map huge pages: %w", err)
	}
	defer func() { _ = unix.Munmap(b) }()
	return physicalPages(b, p.pageSize)
}

// allocate gives the file its page of that index.
func (p hugePool) allocate(f *os.File, index int) error {
	return p.fallocate(f, 0, index)
}

// fallocate is fallocate(2) of one page. Clearing one takes so long that a signal of
// the runtime's can come in between, for which the kernel gives up.
func (p hugePool) fallocate(f *os.File, mode uint32, index int) error {
	for {
		err := unix.Fallocate(int(f.Fd()), mode, int64(index)*int64(p.pageSize), int64(p.pageSize))
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// hand gives pages of one file back to the pool, by index, and to another file.
func (p hugePool) hand(from, to *os.File, pages []int) error {
	const punch = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	for i, page := range pages {
		if err := p.fallocate(from, punch, page); err != nil {
			return fmt.Errorf("give a huge page back: %w", err)
		}
		if err := p.allocate(to, i); err != nil {
			return fmt.Errorf("huge page: %w", err)
		}
	}
	return nil
}

// sideBySide are the indexes of n pages, of those at these addresses, of which
// each begins where the one before ends; nil if there are none.
func sideBySide(at []uint64, pageSize uint64, n int) []int {
	order := make([]int, len(at))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		if at[a] < at[b] {
			return -1
		}
		return 1
	})
	first := 0
	for i := range order {
		if i > 0 && at[order[i]] != at[order[i-1]]+pageSize {
			first = i
		}
		if i-first+1 == n {
			return order[first : i+1]
		}
	}
	return nil
}

// An entry of /proc/PID/pagemap is 8 bytes a page of memory: the frame's number
// and whether there is one (Documentation/admin-guide/mm/pagemap.rst).
const (
	pagemapEntry   = 8
	pagemapFrame   = 1<<55 - 1
	pagemapPresent = 1 << 63
)

// errNoFrame: the kernel does not tell who asks.
var errNoFrame = errors.New("physical addresses take CAP_SYS_ADMIN")

// physicalPages says where in physical memory the pages of b are, which begins
// with one.
func physicalPages(b []byte, pageSize int) ([]uint64, error) {
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	small := uint64(os.Getpagesize())
	at := make([]uint64, len(b)/pageSize)
	var entry [pagemapEntry]byte
	for i := range at {
		_ = bus.Word(b, i*pageSize).Load() // a page that was never touched is not mapped
		where := (addressOf(b) + uint64(i*pageSize)) / small * pagemapEntry
		if _, err := f.ReadAt(entry[:], int64(where)); err != nil {
			return nil, err
		}
		v := binary.NativeEndian.Uint64(entry[:])
		if v&pagemapPresent == 0 || v&pagemapFrame == 0 {
			return nil, errNoFrame
		}
		at[i] = v & pagemapFrame * small
	}
	return at, nil
}

// binaryUnits is a size as people say it.
func binaryUnits(bytes int) string {
	switch {
	case bytes >= 1<<30 && bytes%(1<<30) == 0:
		return fmt.Sprintf("%d GiB", bytes>>30)
	case bytes >= 1<<20:
		return fmt.Sprintf("%d MiB", (bytes+1<<20-1)>>20)
	}
	return fmt.Sprintf("%d KiB", (bytes+1<<10-1)>>10)
}
