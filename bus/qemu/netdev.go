package qemu

import (
	"fmt"
	"os"
	"strings"
)

// Netdev is what a device's network is connected to.
type Netdev interface {
	// option is the value of QEMU's -netdev, without the id. Files that the
	// process is to inherit are added to f.
	option(f *inheritance) string
	// whole: it takes and gives TSO frames uncut.
	whole() bool
}

// User is QEMU's own network in user space: a gateway and DHCP server at 10.0.2.2
// that connects to the host's sockets, and a DNS server at 10.0.2.3.
type User struct {
	// Restrict cuts it off from the host.
	Restrict bool
}

func (n User) option(*inheritance) string {
	if n.Restrict {
		return "user,restrict=on"
	}
	return "user"
}

func (User) whole() bool { return false }

// Tap is a TAP interface of the host, opened with IFF_NO_PI and IFF_VNET_HDR
// (see [OpenTap]). File stays the caller's, who may close it once Start has
// returned.
type Tap struct {
	File *os.File
}

func (n Tap) option(f *inheritance) string {
	return fmt.Sprintf("tap,fd=%d", f.lend(n.File))
}

func (Tap) whole() bool { return true }

// Datagram is a unix datagram socket: a frame is a datagram. It is one that is
// connected (File, which stays the caller's) or two paths in the file system, of
// which QEMU makes Local and sends to Remote.
//
// A device without receive buffers either drops frames or stops reading.
type Datagram struct {
	File          *os.File
	Local, Remote string
}

func (n Datagram) option(f *inheritance) string {
	if n.File != nil {
		return fmt.Sprintf("dgram,local.type=fd,local.str=%d", f.lend(n.File))
	}
	return "dgram,local.type=unix,local.path=" + escape(n.Local) + ",remote.type=unix,remote.path=" + escape(n.Remote)
}

func (Datagram) whole() bool { return false }

// escape makes s a value in an option of QEMU.
func escape(s string) string { return strings.ReplaceAll(s, ",", ",,") }
