package bus

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Memory is a piece of memory that the host and a device, or two processes,
// both see: an interface's arena, a doorbell page. It lies outside the Go heap
// (except [HeapMemory]) and is named by offset, never by address.
//
// Slices of Bytes do not keep the mapping alive: whoever owns the Memory closes
// it after everyone who uses it has stopped.
type Memory struct {
	bytes []byte
	file  *os.File
	once  sync.Once
}

// NewMemory makes size bytes of zeroed shared memory in a sealed memfd, so that
// no process that is given the descriptor can shrink it under another.
func NewMemory(name string, size int) (*Memory, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd %s: %w", name, err)
	}
	file := os.NewFile(uintptr(fd), name)
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		file.Close()
		return nil, fmt.Errorf("memfd %s of %d bytes: %w", name, size, err)
	}
	seals := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		file.Close()
		return nil, fmt.Errorf("memfd %s: seal: %w", name, err)
	}
	return OpenMemory(file)
}

// OpenMemory maps all of file, which it takes over, for reading and writing.
func OpenMemory(file *os.File) (*Memory, error) {
	st, err := file.Stat()
	if err != nil {
		file.Close()
		return nil, err
	}
	return OpenMemoryAt(file, 0, int(st.Size()))
}

// OpenMemoryAt maps size bytes of file from offset on and takes over file. A
// range that the file does not have is refused: touching it would be a SIGBUS.
func OpenMemoryAt(file *os.File, offset int64, size int) (*Memory, error) {
	st, err := file.Stat()
	if err == nil && (size <= 0 || offset < 0 || offset+int64(size) > st.Size()) {
		err = fmt.Errorf("map %s: bytes %d+%d of %d", file.Name(), offset, size, st.Size())
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	b, err := unix.Mmap(int(file.Fd()), offset, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("map %s: %w", file.Name(), err)
	}
	return &Memory{bytes: b, file: file}, nil
}

// HeapMemory is memory on the Go heap, for tests: the race detector sees it,
// another process does not. It is aligned to 4096 bytes.
func HeapMemory(size int) *Memory {
	return &Memory{bytes: alignedBytes(size, 4096)}
}

// Bytes is the memory itself.
func (m *Memory) Bytes() []byte { return m.bytes }

// Size is its length in bytes.
func (m *Memory) Size() int { return len(m.bytes) }

// File is the descriptor to pass to another process, nil for heap memory. The
// memory keeps owning it.
func (m *Memory) File() *os.File { return m.file }

// Close unmaps the memory. Using a slice of it afterwards is a fault.
func (m *Memory) Close() error {
	var err error
	m.once.Do(func() {
		if m.file == nil {
			return
		}
		err = unix.Munmap(m.bytes)
		m.bytes = nil
		m.file.Close()
	})
	return err
}
