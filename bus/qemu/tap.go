package qemu

// This file talks to the kernel by itself: opening a TAP interface is an ioctl.

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// OpenTap opens the TAP interface of a name, making it if there is none, for use
// as a [Tap]. One that was made lasts as long as it is open. The process needs
// the right to (CAP_NET_ADMIN, or ownership of the interface).
func OpenTap(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("tap %s: /dev/net/tun: %w", name, err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("tap %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), "tap "+name), nil
}
