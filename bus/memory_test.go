package bus

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

func newMemory(t *testing.T, size int) *Memory {
	t.Helper()
	m, err := NewMemory("test", size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// file is a file of size bytes whose byte i is i/4096.
func file(t *testing.T, size int) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "memory")
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i / 4096)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestMemoryIsSealed(t *testing.T) {
	m := newMemory(t, 8192)
	if m.Size() != 8192 || !Sealed(m.File()) {
		t.Fatalf("%d bytes, sealed %v", m.Size(), Sealed(m.File()))
	}
	for _, size := range []int64{0, 4096, 16384} {
		if err := m.File().Truncate(size); err == nil {
			t.Errorf("the file could be made %d bytes long", size)
		}
	}
	if _, err := unix.FcntlInt(m.File().Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err == nil {
		t.Error("a seal could be added")
	}
	if f := file(t, 4096); Sealed(f) {
		t.Error("a file on disk is sealed")
	}
}

func TestMemoryIsShared(t *testing.T) {
	m := newMemory(t, 4096)
	fd, err := unix.Dup(int(m.File().Fd()))
	if err != nil {
		t.Fatal(err)
	}
	other, err := OpenMemory(os.NewFile(uintptr(fd), "other"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	m.Bytes()[100] = 42
	if other.Bytes()[100] != 42 {
		t.Error("two mappings of one file differ")
	}
}

func TestMemoryOfShortFile(t *testing.T) {
	for _, c := range []struct {
		offset int64
		size   int
	}{
		{0, 8193}, {4096, 4097}, {8192, 1}, {8192, 4096}, {0, 0}, {0, -1}, {-4096, 4096},
		{math.MaxInt64 - 4095, 4096}, {math.MaxInt64, math.MaxInt}, {0, math.MaxInt}, {1, 4096},
	} {
		if m, err := OpenMemoryAt(file(t, 8192), c.offset, c.size); err == nil {
			t.Errorf("%d bytes from %d on were mapped of 8192", c.size, c.offset)
			m.Close()
		}
	}
	m, err := OpenMemoryAt(file(t, 8192), 4096, 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Bytes()[0] != 1 || m.FileOffset() != 4096 {
		t.Errorf("page %d mapped from %d", m.Bytes()[0], m.FileOffset())
	}
}

func TestMemoryRefusedIsClosed(t *testing.T) {
	f := file(t, 4096)
	if _, err := OpenMemoryAt(f, 0, 8192); err == nil {
		t.Fatal("mapped")
	}
	if err := f.Close(); err == nil {
		t.Error("the file that was taken over is open still")
	}
}

func TestMemoryClosesTwice(t *testing.T) {
	m := newMemory(t, 4096)
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil || m.Bytes() != nil {
		t.Errorf("second Close = %v, %d bytes left", err, len(m.Bytes()))
	}
}

// mapped tells whether the page at b[0] is mapped.
func mapped(b []byte) bool {
	var resident [1]byte
	return mincore(b, resident[:]) == nil
}

func TestAbandonedMemoryStaysUntilItIsUnreachable(t *testing.T) {
	m, err := NewMemory("test", 4096)
	if err != nil {
		t.Fatal(err)
	}
	b := m.Bytes()
	m.Abandon()
	if m.File().Close() == nil {
		t.Error("the descriptor is open still")
	}
	runtime.GC()
	m.Bytes()[7] = 1 // a fault if it is gone
	if !mapped(b) {
		t.Fatal("unmapped while in use")
	}
	runtime.KeepAlive(m)
	m = nil
	for range 100 {
		runtime.GC()
		if !mapped(b) {
			return
		}
		runtime.Gosched()
	}
	t.Error("never unmapped")
}

func TestHeapMemoryIsAligned(t *testing.T) {
	m := HeapMemory(100)
	if m.Size() != 100 || m.File() != nil || m.Close() != nil {
		t.Errorf("%d bytes, file %v", m.Size(), m.File())
	}
	Words64(m.Bytes()) // panics if it is not
}
