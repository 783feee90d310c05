package tap

import (
	"os"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// notices are the kernel's messages about links (rtnetlink(7)), in this process's
// network namespace and those that it has a number for. The socket is in its own: one
// in another would keep that from being removed.
type notices struct {
	file *os.File
	conn syscall.RawConn
	data [64]byte // what they say is not looked at
}

func openNotices() (*notices, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	const groups = 1<<(unix.RTNLGRP_LINK-1) | 1<<(unix.RTNLGRP_NSID-1) // namespaces that end are not heard of otherwise
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		unix.Close(fd)
		return nil, err
	}
	// Who may not listen to others has its own.
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_LISTEN_ALL_NSID, 1)
	n := &notices{file: os.NewFile(uintptr(fd), "netlink")}
	n.conn, err = n.file.SyscallConn()
	return n, err
}

// wait waits until there are some, and takes all of them; false says that the file is
// closed.
func (n *notices) wait() bool {
	some := false
	err := n.conn.Read(func(fd uintptr) bool {
		for {
			switch _, _, err := unix.Recvfrom(int(fd), n.data[:], 0); err {
			case nil, unix.ENOBUFS: // the latter if there were too many
				some = true
			case unix.EINTR:
			case unix.EAGAIN:
				return some
			default:
				some = false
				return true
			}
		}
	})
	return err == nil && some
}

// hear has notices come from a namespace: it gets a number here, if it has none.
func hear(place netns.NsHandle) {
	const anyNumber = -1
	if !own(place) {
		_ = netlink.SetNetNsIdByFd(int(place), anyNumber)
	}
}

// own tells whether a namespace is the one that this process is in.
func own(place netns.NsHandle) bool {
	here, err := netns.Get()
	if err != nil {
		return false
	}
	defer here.Close()
	return here.Equal(place)
}
