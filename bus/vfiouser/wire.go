package vfiouser

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Message layouts follow QEMU's docs/interop/vfio-user.rst; where that text and
// the implementations differ, the implementations are followed and the place
// says so. All fields are in host byte order.

var host = binary.NativeEndian

// ErrProtocol: the peer sent what the protocol does not allow.
var ErrProtocol = errors.New("vfio-user protocol violation")

func violation(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}

// command is a message's command number.
type command uint16

const (
	cmdVersion         command = 1
	cmdDMAMap          command = 2
	cmdDMAUnmap        command = 3
	cmdGetInfo         command = 4
	cmdGetRegionInfo   command = 5
	cmdGetRegionIOFDs  command = 6
	cmdGetIRQInfo      command = 7
	cmdSetIRQs         command = 8
	cmdRegionRead      command = 9
	cmdRegionWrite     command = 10
	cmdDMARead         command = 11 // server to client
	cmdDMAWrite        command = 12 // server to client
	cmdReset           command = 13
	cmdRegionWriteMany command = 15 // REGION_WRITE_MULTI
)

var commandNames = map[command]string{
	cmdVersion: "VERSION", cmdDMAMap: "DMA_MAP", cmdDMAUnmap: "DMA_UNMAP",
	cmdGetInfo: "DEVICE_GET_INFO", cmdGetRegionInfo: "DEVICE_GET_REGION_INFO",
	cmdGetRegionIOFDs: "DEVICE_GET_REGION_IO_FDS", cmdGetIRQInfo: "DEVICE_GET_IRQ_INFO",
	cmdSetIRQs: "DEVICE_SET_IRQS", cmdRegionRead: "REGION_READ", cmdRegionWrite: "REGION_WRITE",
	cmdDMARead: "DMA_READ", cmdDMAWrite: "DMA_WRITE", cmdReset: "DEVICE_RESET",
	cmdRegionWriteMany: "REGION_WRITE_MULTI",
}

func (c command) String() string {
	if name := commandNames[c]; name != "" {
		return name
	}
	return fmt.Sprintf("command %d", uint16(c))
}

// header heads every message: id u16, command u16, size u32 (header included),
// flags u32, errno u32.
type header struct {
	id    uint16
	cmd   command
	size  uint32
	flags uint32
	errno uint32
}

const (
	headerSize = 16

	flagTypeMask uint32 = 0xf
	flagCommand  uint32 = 0
	flagReply    uint32 = 1
	flagNoReply  uint32 = 1 << 4
	flagError    uint32 = 1 << 5
)

func (h header) isReply() bool { return h.flags&flagTypeMask == flagReply }
func (h header) noReply() bool { return h.flags&flagNoReply != 0 }
func (h header) failed() bool  { return h.flags&flagError != 0 }

// put writes h to b, the first headerSize bytes of a message.
func (h header) put(b []byte) {
	_ = b[headerSize-1]
	host.PutUint16(b[0:], h.id)
	host.PutUint16(b[2:], uint16(h.cmd))
	host.PutUint32(b[4:], h.size)
	host.PutUint32(b[8:], h.flags)
	host.PutUint32(b[12:], h.errno)
}

func parseHeader(b []byte) header {
	_ = b[headerSize-1]
	return header{
		id:    host.Uint16(b[0:]),
		cmd:   command(host.Uint16(b[2:])),
		size:  host.Uint32(b[4:]),
		flags: host.Uint32(b[8:]),
		errno: host.Uint32(b[12:]),
	}
}

const (
	// maxTransfer is the most data bytes in one region access, ours and the
	// protocol's default.
	maxTransfer = 1 << 20
	// maxMessage is the largest message taken: a region access of maxTransfer
	// bytes (what libvfio-user takes, too).
	maxMessage = headerSize + regionAccessSize + maxTransfer
	// maxFDs is how many descriptors this side takes in one message. QEMU
	// refuses a server that says more than 16.
	maxFDs = 16
	// maxMaps is how many DMA ranges a server remembers.
	maxMaps = 4096
	// pageSize is the granularity of DMA ranges that a server takes.
	pageSize = 4096

	// numRegions counts PCI's regions and VGA, which no device here has.
	numRegions = 9
	// numIRQs counts INTx, MSI, MSI-X, error and request.
	numIRQs = 5
)
