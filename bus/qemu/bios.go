package qemu

// This file uses x/sys/unix for memfd_create: firmware that needs no place in the
// file system.

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const (
	biosSize = 64 << 10
	// resetVector is where an x86 processor begins, in the last 64 KiB below 4 GiB.
	resetVector = 0xFFF0
)

// halt is all that the machine's processor does: cli; hlt; and again, should
// something that can't be masked wake it.
var halt = [...]byte{0xFA, 0xF4, 0xEB, 0xFD}

// newBIOS makes firmware that leaves the machine as its reset did.
func newBIOS() (*os.File, error) {
	fd, err := unix.MemfdCreate("bios", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd: %w", err)
	}
	image := make([]byte, biosSize)
	for i := range image {
		image[i] = halt[1]
	}
	copy(image[resetVector:], halt[:])
	file := os.NewFile(uintptr(fd), "bios")
	if _, err := file.Write(image); err != nil {
		file.Close()
		return nil, fmt.Errorf("bios: %w", err)
	}
	return file, nil
}
