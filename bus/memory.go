package bus

import (
	"fmt"
	"os"
	"runtime"
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
	bytes  []byte
	file   *os.File
	offset int64
	once   sync.Once
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

// OpenMemoryAt maps size bytes of file from offset on, a multiple of the page
// size, and takes over file. A range that the file does not have is refused:
// touching it would be a SIGBUS. A file that can still shrink can bring that
// about later; see [Sealed].
func OpenMemoryAt(file *os.File, offset int64, size int) (*Memory, error) {
	st, err := file.Stat()
	if err == nil && (size <= 0 || offset < 0 || int64(size) > st.Size()-offset) {
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
	return &Memory{bytes: b, file: file, offset: offset}, nil
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

// FileOffset is where in its file the memory begins.
func (m *Memory) FileOffset() int64 { return m.offset }

// Sealed tells whether file can never become shorter than it is, so that memory
// mapped from it can't be made to fault by whoever else has the descriptor.
func Sealed(file *os.File) bool {
	raw, err := file.SyscallConn()
	if err != nil {
		return false
	}
	var seals int
	err = raw.Control(func(fd uintptr) { seals, _ = unix.FcntlInt(fd, unix.F_GET_SEALS, 0) })
	return err == nil && seals > 0 && seals&unix.F_SEAL_SHRINK != 0
}

// Abandon closes the descriptor at once and leaves unmapping to the garbage
// collector, when nothing refers to m any more. It is Close for memory that a
// late user may still touch, and for nothing else: it gives back no memory at a
// known time.
func (m *Memory) Abandon() {
	m.once.Do(func() {
		if m.file == nil {
			return
		}
		m.file.Close()
		runtime.AddCleanup(m, func(b []byte) { _ = unix.Munmap(b) }, m.bytes)
	})
}

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
