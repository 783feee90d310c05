package main

// This file has the one ioctl whose argument holds a pointer: unsafe is for that.

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"nicd/guest"
)

// ethtoolValue is struct ethtool_value of include/uapi/linux/ethtool.h.
type ethtoolValue struct{ command, on uint32 }

// ethtoolRequest is struct ifreq with its pointer.
type ethtoolRequest struct {
	name [unix.IFNAMSIZ]byte
	data *ethtoolValue
	_    [16]byte
}

const setTSO = 0x1f // ETHTOOL_STSO

// disableTSO makes the kernel cut packets itself for an interface.
func disableTSO(s guest.Step) error {
	name, err := interfaceOf(s)
	if err != nil {
		return err
	}
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	r := ethtoolRequest{data: &ethtoolValue{command: setTSO, on: 0}}
	copy(r.name[:], name)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&r))); errno != 0 {
		return fmt.Errorf("%s: tso off: %w", name, errno)
	}
	return nil
}
