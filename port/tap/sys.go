package tap

// This file talks to the kernel's TUN/TAP driver (Documentation/networking/
// tuntap.rst and include/uapi/linux/if_tun.h). unsafe is for the vectors that
// readv and writev take, which x/sys makes anew for each call, and for two
// ioctls that have no wrapper.

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"nicd/framework"
)

const devicePath = "/dev/net/tun"

const deviceFlags = unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR

// What the kernel may leave to the interface below.
const (
	offloadChecksum = unix.TUN_F_CSUM
	offloadTSO4     = unix.TUN_F_TSO4
	offloadTSO6     = unix.TUN_F_TSO6
	offloadECN      = unix.TUN_F_TSO_ECN
	offloadUSO      = unix.TUN_F_USO4 | unix.TUN_F_USO6 // both or none, and not before Linux 6.2
)

// openQueue attaches one queue to the TAP device of a name, and makes the device
// if create is set.
func openQueue(name string, create bool) (*os.File, error) {
	fd, err := unix.Open(devicePath, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, openError(err)
	}
	request, err := unix.NewIfreq(name)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("%q can't be an interface's name: it has 1 to 15 characters", name)
	}
	flags := uint16(deviceFlags | unix.IFF_MULTI_QUEUE)
	if create {
		flags |= unix.IFF_TUN_EXCL
	}
	request.SetUint16(flags)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		unix.Close(fd)
		return nil, createError(name, err)
	}
	return openedQueue(fd)
}

// openedQueue makes the header what this package writes, and a file whose reads
// wait in the runtime's poller. It owns fd.
func openedQueue(fd int) (*os.File, error) {
	for _, set := range []struct {
		request uint
		value   int
	}{{unix.TUNSETVNETHDRSZ, headerLen}, {unix.TUNSETVNETLE, 1}} {
		if err := unix.IoctlSetPointerInt(fd, set.request, set.value); err != nil {
			unix.Close(fd)
			return nil, fmt.Errorf("the kernel's TAP device refuses a virtio header: %w", err)
		}
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), devicePath), nil
}

// inheritQueue takes over a descriptor that somebody else opened.
func inheritQueue(fd int) (*os.File, error) {
	var flags uint16
	request, err := interfaceOf(fd)
	if err == nil {
		flags = request.Uint16()
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("descriptor %d is not a queue of a TAP device: %w", fd, err)
	case flags&unix.IFF_TAP == 0 || flags&unix.IFF_NO_PI == 0 || flags&unix.IFF_VNET_HDR == 0:
		return nil, fmt.Errorf("descriptor %d is not opened with IFF_TAP, IFF_NO_PI and IFF_VNET_HDR (its flags are %#x)", fd, flags)
	}
	unix.CloseOnExec(fd)
	return openedQueue(fd)
}

func interfaceOf(fd int) (*unix.Ifreq, error) {
	request, err := unix.NewIfreq("")
	if err != nil {
		return nil, err
	}
	return request, unix.IoctlIfreq(fd, unix.TUNGETIFF, request)
}

func openError(err error) error {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return fmt.Errorf("there is no %s: load the kernel's tun module", devicePath)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("no permission to open %s: run as root, or hand over a queue with fd", devicePath)
	}
	return fmt.Errorf("%s: %w", devicePath, err)
}

func createError(name string, err error) error {
	switch {
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
		return fmt.Errorf("the name %s is in use by another interface: choose another", name)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("no permission to make the interface %s: that takes CAP_NET_ADMIN", name)
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("the kernel does not take %q for a TAP device with a virtio header and several queues", name)
	}
	return fmt.Errorf("making the interface %s: %w", name, err)
}

// control runs an ioctl on a queue's descriptor.
func control(queue *os.File, do func(fd int) error) error {
	conn, err := queue.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := conn.Control(func(fd uintptr) { failed = do(int(fd)) }); err != nil {
		return err
	}
	return failed
}

// setOffloads says what the kernel may leave to us.
func setOffloads(queue *os.File, offloads int) error {
	return control(queue, func(fd int) error { return unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, offloads) })
}

func setCarrier(queue *os.File, up bool) error {
	value := 0
	if up {
		value = 1
	}
	return control(queue, func(fd int) error { return unix.IoctlSetPointerInt(fd, unix.TUNSETCARRIER, value) })
}

// hardwareAddress is struct ifreq with a struct sockaddr in it.
type hardwareAddress struct {
	name    [unix.IFNAMSIZ]byte
	family  uint16
	address [22]byte
}

// setMAC goes through the queue and so reaches the interface in whichever
// namespace it is by now.
func setMAC(queue *os.File, mac framework.MAC) error {
	request := hardwareAddress{family: unix.ARPHRD_ETHER}
	copy(request.address[:], mac[:])
	return control(queue, func(fd int) error {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFHWADDR, uintptr(unsafe.Pointer(&request)))
		if errno != 0 {
			return errno
		}
		return nil
	})
}

// getMAC is the interface's address, in whichever namespace it is.
func getMAC(queue *os.File) (mac framework.MAC, err error) {
	var request hardwareAddress
	err = control(queue, func(fd int) error {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCGIFHWADDR, uintptr(unsafe.Pointer(&request)))
		if errno != 0 {
			return errno
		}
		return nil
	})
	return framework.MAC(request.address[:6]), err
}

// currentName is the interface's name, which it may have been given since.
func currentName(queue *os.File) (name string, err error) {
	err = control(queue, func(fd int) error {
		request, err := interfaceOf(fd)
		if err == nil {
			name = request.Name()
		}
		return err
	})
	return name, err
}

func setMTU(queue *os.File, mtu int) error {
	return beside(queue, func(socket int, request *unix.Ifreq) error {
		request.SetUint32(uint32(mtu))
		return unix.IoctlIfreq(socket, unix.SIOCSIFMTU, request)
	})
}

func getMTU(queue *os.File) (mtu int, err error) {
	err = beside(queue, func(socket int, request *unix.Ifreq) error {
		err := unix.IoctlIfreq(socket, unix.SIOCGIFMTU, request)
		mtu = int(request.Uint32())
		return err
	})
	return mtu, err
}

// beside runs an ioctl that takes a socket in the interface's network
// namespace and its name there.
func beside(queue *os.File, do func(socket int, request *unix.Ifreq) error) error {
	return control(queue, func(fd int) error {
		request, err := interfaceOf(fd)
		if err != nil {
			return err
		}
		if request, err = unix.NewIfreq(request.Name()); err != nil {
			return err
		}
		socket, err := socketBeside(fd)
		if err != nil {
			return err
		}
		defer unix.Close(socket)
		return do(socket, request)
	})
}

// linkSettings is struct ethtool_cmd of include/uapi/linux/ethtool.h, which is
// older than what it was replaced by, and enough.
type linkSettings struct {
	command   uint32
	_         [2]uint32 // supported, advertising
	speed     uint16    // Mbit/s
	duplex    uint8
	_         [5]uint8  // port, PHY, transceiver, autonegotiation, MDIO
	_         [2]uint32 // maxtxpkt, maxrxpkt
	speedHigh uint16
	_         [2]uint8 // MDI-X
	_         [3]uint32
}

const ethtoolSetLink = 2 // ETHTOOL_SSET

// setSpeed says what "ethtool" shows as the link's speed.
func setSpeed(queue *os.File, mbps int, full bool) error {
	settings := linkSettings{command: ethtoolSetLink, speed: uint16(mbps), speedHigh: uint16(mbps >> 16)}
	if full {
		settings.duplex = 1
	}
	return beside(queue, func(socket int, request *unix.Ifreq) error {
		data := struct {
			name     [unix.IFNAMSIZ]byte
			settings *linkSettings
			_        [16]byte // as long as struct ifreq
		}{settings: &settings}
		copy(data.name[:unix.IFNAMSIZ-1], request.Name())
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&data)))
		if errno != 0 {
			return errno
		}
		return nil
	})
}

// socketBeside opens a socket in the network namespace that a queue's interface
// is in.
func socketBeside(queue int) (int, error) {
	return inNamespace(queue, func() (int, error) {
		return unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	})
}

// openQueueBeside attaches one more queue to the device of another.
func openQueueBeside(queue *os.File) (file *os.File, err error) {
	name, err := currentName(queue)
	if err != nil {
		return nil, err
	}
	err = control(queue, func(fd int) error {
		_, err := inNamespace(fd, func() (int, error) {
			file, err = openQueue(name, false)
			return 0, err
		})
		return err
	})
	return file, err
}

// inNamespace opens something in the network namespace that a queue's interface
// is in by now. A thread enters it for as long as that takes.
func inNamespace(queue int, open func() (int, error)) (int, error) {
	namespace, err := unix.IoctlRetInt(queue, unix.TUNGETDEVNETNS)
	if err != nil {
		// Kernels before 5.2, or no CAP_NET_ADMIN there: it has not moved.
		return open()
	}
	defer unix.Close(namespace)
	type result struct {
		fd  int
		err error
	}
	opened := make(chan result)
	go func() {
		runtime.LockOSThread()
		fd, err := openIn(namespace, open)
		opened <- result{fd, err}
	}()
	r := <-opened
	return r.fd, r.err
}

// openIn is inNamespace on a thread that is locked. It is unlocked when it is back
// where it was; if it can't go back it ends with its goroutine, all but a process's
// first thread, which would stay and keep the namespace.
func openIn(namespace int, open func() (int, error)) (int, error) {
	home, err := netns.Get()
	if err != nil {
		return -1, err
	}
	defer home.Close()
	if err := unix.Setns(namespace, unix.CLONE_NEWNET); err != nil {
		return -1, err
	}
	fd, err := open()
	if netns.Set(home) == nil {
		runtime.UnlockOSThread()
	}
	return fd, err
}

// Vectors of a packet: the header, and a frame of framework.MaxFragments, with
// room for a tag that splits the first.
const maxVectors = 1 + framework.MaxFragments + 2

// vectors are what readv fills or writev sends. The memory that they point to is
// kept alive by its owner.
type vectors [maxVectors]unix.Iovec

func (v *vectors) set(i int, b []byte) {
	v[i].Base = unsafe.SliceData(b)
	v[i].SetLen(len(b))
}

// The descriptors are nonblocking, so that the system calls do not wait, and need
// not tell the scheduler: if they did, a frame that takes the kernel longer than
// 20 microseconds would cost the goroutine its processor.

func (v *vectors) read(fd uintptr, n int) (int, unix.Errno) {
	return v.call(unix.SYS_READV, fd, n)
}

func (v *vectors) write(fd uintptr, n int) (int, unix.Errno) {
	return v.call(unix.SYS_WRITEV, fd, n)
}

func (v *vectors) call(trap, fd uintptr, n int) (int, unix.Errno) {
	for {
		done, _, errno := unix.RawSyscall(trap, fd, uintptr(unsafe.Pointer(v)), uintptr(n))
		if errno != unix.EINTR {
			return int(done), errno
		}
	}
}
