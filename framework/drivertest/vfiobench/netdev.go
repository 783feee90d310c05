package vfiobench

// This file talks to the kernel, by golang.org/x/sys/unix, because a packet socket
// and an interface's settings are not to be had otherwise. It uses unsafe for one
// ioctl, SIOCETHTOOL, whose argument holds a pointer.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// netdev is a Linux interface with a packet socket (packet(7)): all that arrives
// at it can be read, and what is written is sent, past any queueing discipline, so
// that order is kept. Reads are for one goroutine, writes for another.
type netdev struct {
	name string
	file *os.File
	conn syscall.RawConn
	oob  []byte
}

// Sizes of a netdev: of the longest frame, and of what may wait to be read.
const (
	maxFrame      = 1 << 16
	receiveBuffer = 32 << 20
)

// openNetdev takes CAP_NET_RAW and CAP_NET_ADMIN.
func openNetdev(name string) (*netdev, error) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("there is no interface %q", name)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: a packet socket: %w", name, err)
	}
	if err := bindTo(fd, i.Index); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("%s: a packet socket: %w", name, err)
	}
	d := &netdev{name: name, file: os.NewFile(uintptr(fd), name), oob: make([]byte, unix.CmsgSpace(int(unsafe.Sizeof(unix.TpacketAuxdata{}))))}
	if d.conn, err = d.file.SyscallConn(); err != nil {
		d.file.Close()
		return nil, err
	}
	return d, nil
}

// bindTo sets a socket up before the first frame comes.
func bindTo(fd, index int) error {
	for _, o := range []struct{ level, option, value int }{
		{unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1},
		{unix.SOL_PACKET, unix.PACKET_AUXDATA, 1},
		{unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1},
		{unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer},
	} {
		if err := unix.SetsockoptInt(fd, o.level, o.option, o.value); err != nil {
			return err
		}
	}
	promiscuous := unix.PacketMreq{Ifindex: int32(index), Type: unix.PACKET_MR_PROMISC}
	if err := unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &promiscuous); err != nil {
		return err
	}
	return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_ALL), Ifindex: index})
}

func networkOrder(v uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], v)
	return binary.NativeEndian.Uint16(b[:])
}

// close also ends what the socket's promiscuity was for.
func (d *netdev) close() error { return d.file.Close() }

// write tries once to send a frame. Without room for it the error is errNoRoom.
func (d *netdev) write(frame []byte) (err error) {
	broken := d.conn.Write(func(fd uintptr) bool {
		_, err = unix.Write(int(fd), frame)
		return true
	})
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOBUFS) {
		return errNoRoom
	}
	return errors.Join(broken, err)
}

var errNoRoom = errors.New("the interface has no room")

// interrupt ends a read that waits, and all to come until resume.
func (d *netdev) interrupt() { _ = d.file.SetReadDeadline(time.Unix(1, 0)) }

func (d *netdev) resume() { _ = d.file.SetReadDeadline(time.Time{}) }

// read waits for a frame. It is in buf, whose length is maxFrame. A tag that the
// kernel took out is in its place again.
func (d *netdev) read(buf []byte) (frame []byte, err error) {
	for {
		var n, oobn int
		broken := d.conn.Read(func(fd uintptr) bool {
			n, oobn, _, _, err = unix.Recvmsg(int(fd), buf[tagLen:], d.oob, 0)
			return !errors.Is(err, unix.EAGAIN)
		})
		switch {
		case broken != nil:
			return nil, broken
		case errors.Is(err, unix.ENETDOWN): // said once, when the interface goes down
		case err != nil:
			return nil, err
		case n >= headerLen:
			return withTag(buf[:tagLen+n], d.oob[:oobn]), nil
		}
	}
}

// forget reads what waits to be read, up to now.
func (d *netdev) forget(buf []byte) {
	_ = d.conn.Read(func(fd uintptr) bool {
		for {
			_, _, err := unix.Recvfrom(int(fd), buf, 0)
			if err != nil && !errors.Is(err, unix.ENETDOWN) {
				return true
			}
		}
	})
}

// Parts of an Ethernet frame.
const (
	addressLen = 6
	headerLen  = 14
	tagLen     = 4
	tpid8021Q  = 0x8100
)

// withTag puts the tag of oob, if there is one, into the frame that begins at
// buf[tagLen]: struct tpacket_auxdata of include/uapi/linux/if_packet.h.
func withTag(buf, oob []byte) []byte {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(messages) == 0 || messages[0].Header.Type != unix.PACKET_AUXDATA {
		return buf[tagLen:]
	}
	var aux unix.TpacketAuxdata
	if _, err := binary.Decode(messages[0].Data, binary.NativeEndian, &aux); err != nil || aux.Status&unix.TP_STATUS_VLAN_VALID == 0 {
		return buf[tagLen:]
	}
	tpid := uint16(tpid8021Q)
	if aux.Status&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
		tpid = aux.Vlan_tpid
	}
	copy(buf, buf[tagLen:tagLen+2*addressLen])
	binary.BigEndian.PutUint16(buf[2*addressLen:], tpid)
	binary.BigEndian.PutUint16(buf[2*addressLen+2:], aux.Vlan_tci)
	return buf
}

// request does an ioctl about the interface.
func (d *netdev) request(what string, code uint, set func(*unix.Ifreq)) (r *unix.Ifreq, err error) {
	if r, err = unix.NewIfreq(d.name); err != nil {
		return nil, err
	}
	if set != nil {
		set(r)
	}
	broken := d.conn.Control(func(fd uintptr) { err = unix.IoctlIfreq(int(fd), code, r) })
	if err = errors.Join(broken, err); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", d.name, what, err)
	}
	return r, nil
}

// state tells whether the interface is up, and whether it has a carrier besides.
func (d *netdev) state() (up, running bool, err error) {
	r, err := d.request("its flags", unix.SIOCGIFFLAGS, nil)
	if err != nil {
		return false, false, err
	}
	return r.Uint16()&unix.IFF_UP != 0, r.Uint16()&unix.IFF_RUNNING != 0, nil
}

// setUp brings the interface up or takes it down, unless it is: to say so again
// sets its filters anew, after which some are deaf for a second (QEMU's e1000).
func (d *netdev) setUp(up bool) error {
	r, err := d.request("its flags", unix.SIOCGIFFLAGS, nil)
	if err != nil {
		return err
	}
	flags := r.Uint16() &^ unix.IFF_UP
	if up {
		flags |= unix.IFF_UP
	}
	if flags == r.Uint16() {
		return nil
	}
	_, err = d.request("up or down", unix.SIOCSIFFLAGS, func(r *unix.Ifreq) { r.SetUint16(flags) })
	return err
}

func (d *netdev) mtu() (int, error) {
	r, err := d.request("its MTU", unix.SIOCGIFMTU, nil)
	if err != nil {
		return 0, err
	}
	return int(r.Uint32()), nil
}

func (d *netdev) setMTU(mtu int) error {
	_, err := d.request(fmt.Sprintf("an MTU of %d", mtu), unix.SIOCSIFMTU, func(r *unix.Ifreq) { r.SetUint32(uint32(mtu)) })
	return err
}

// offload is something that the interface does to packets: how it is asked for and
// set (ETHTOOL_G* and ETHTOOL_S* of include/uapi/linux/ethtool.h), and which bit of
// the value is meant.
type offload struct {
	name     string
	get, set uint32
	bit      uint32
	fixed    bool // some interfaces can't do without, and that does no harm
}

// offloads are those that merge what arrives, take its tag out (the kernel's e1000
// then forgets the priority), cut what is sent, or sum it, in the order in which the
// kernel takes them on again.
var offloads = []offload{
	{name: "rx-checksum", get: 0x14, set: 0x15, bit: 1},
	{name: "tx-checksum", get: 0x16, set: 0x17, bit: 1},
	{name: "TSO", get: 0x1E, set: 0x1F, bit: 1},
	{name: "GSO", get: 0x23, set: 0x24, bit: 1},
	{name: "rx-vlan", get: 0x25, set: 0x26, bit: 1 << 8, fixed: true}, // ETH_FLAG_RXVLAN
	{name: "LRO", get: 0x25, set: 0x26, bit: 1 << 15},                 // ETH_FLAG_LRO
	{name: "GRO", get: 0x2B, set: 0x2C, bit: 1},
}

// offload tells whether an offload is on.
func (d *netdev) offload(o offload) (on bool, err error) {
	v, err := d.offloadValue(o)
	return v&o.bit != 0, err
}

func (d *netdev) offloadValue(o offload) (uint32, error) {
	v := ethtoolValue{command: o.get}
	err := d.ethtool(unsafe.Pointer(&v))
	if errors.Is(err, unix.EOPNOTSUPP) {
		return 0, nil
	}
	return v.value, err
}

// setOffload turns an offload on or off, unless it is.
func (d *netdev) setOffload(o offload, on bool) error {
	was, err := d.offloadValue(o)
	if err != nil {
		return fmt.Errorf("%s: %s: %w", d.name, o.name, err)
	}
	v := ethtoolValue{command: o.set, value: was &^ o.bit}
	if on {
		v.value |= o.bit
	}
	if v.value == was {
		return nil
	}
	if err := d.ethtool(unsafe.Pointer(&v)); err != nil && !o.fixed {
		return fmt.Errorf("%s: %s: %w", d.name, o.name, err)
	}
	return nil
}

// queues is how many receive or transmit queues the interface has, whichever are
// more.
func (d *netdev) queues() (int, error) {
	c := ethtoolChannels{command: getChannels}
	err := d.ethtool(unsafe.Pointer(&c))
	if errors.Is(err, unix.EOPNOTSUPP) {
		return 1, nil
	}
	return int(max(c.rx, c.tx) + c.combined), err
}

// ethtoolValue is struct ethtool_value.
type ethtoolValue struct{ command, value uint32 }

const getChannels = 0x3C // ETHTOOL_GCHANNELS

// ethtoolChannels is struct ethtool_channels.
type ethtoolChannels struct {
	command                 uint32
	_                       [4]uint32 // the most that there may be
	rx, tx, other, combined uint32
}

// ethtoolRequest is struct ifreq with its pointer.
type ethtoolRequest struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [16]byte
}

func (d *netdev) ethtool(data unsafe.Pointer) (err error) {
	r := ethtoolRequest{data: data}
	copy(r.name[:unix.IFNAMSIZ-1], d.name)
	broken := d.conn.Control(func(fd uintptr) {
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&r))); errno != 0 {
			err = errno
		}
	})
	return errors.Join(broken, err)
}
