package qemu

import (
	"encoding/binary"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"nicd/bus"
)

// This file uses x/sys/unix to send files over a socket.

// ivshmem is the server of an inter-VM shared memory device (QEMU's
// docs/specs/ivshmem-spec.rst), of which only the doorbell is of use here: a write
// of a peer's number and a vector to it signals one of the peer's eventfds. We are
// peer 0, because the 16 bits of an MSI message have no room for another.
type ivshmem struct {
	conn   *net.UnixConn
	shared *bus.Memory
	events []*bus.Event // ours, by vector
}

const (
	ivshmemVersion  = 0
	ivshmemOurs     = 0
	ivshmemQEMUs    = 1
	ivshmemShared   = -1
	ivshmemDoorbell = 12 // offset in BAR 0: peer << 16 | vector
	ivshmemSize     = 4096
)

// doorbellData is what to write to the doorbell register for a vector of ours.
func doorbellData(vector int) uint32 { return ivshmemOurs<<16 | uint32(vector) }

func newIvshmem(conn *net.UnixConn, vectors int) (s *ivshmem, err error) {
	s = &ivshmem{conn: conn}
	if s.shared, err = bus.NewMemory("ivshmem", ivshmemSize); err != nil {
		return nil, err
	}
	for range vectors {
		e, err := bus.NewEvent()
		if err != nil {
			s.close()
			return nil, err
		}
		s.events = append(s.events, e)
	}
	return s, nil
}

// introduce sends all that QEMU wants to know, into the socket's buffer. The
// shared memory comes last: QEMU reads up to it before it goes on, so that our
// events are known once its machine is there.
func (s *ivshmem) introduce() error {
	for _, number := range []int64{ivshmemVersion, ivshmemQEMUs} {
		if err := s.send(number, nil); err != nil {
			return err
		}
	}
	for _, e := range s.events {
		if err := s.send(ivshmemOurs, e.File()); err != nil {
			return err
		}
	}
	return s.send(ivshmemShared, s.shared.File())
}

// send sends a number, and with it at most one file.
func (s *ivshmem) send(number int64, file *os.File) error {
	message := binary.LittleEndian.AppendUint64(nil, uint64(number))
	if file == nil {
		_, err := s.conn.Write(message)
		return err
	}
	return sendFile(s.conn, message, file)
}

// sendFile sends message with file attached.
func sendFile(conn *net.UnixConn, message []byte, file *os.File) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var failure error
	err = raw.Control(func(fd uintptr) {
		_, _, failure = conn.WriteMsgUnix(message, unix.UnixRights(int(fd)), nil)
	})
	if failure != nil {
		return failure
	}
	return err
}

func (s *ivshmem) close() {
	s.conn.Close()
	for _, e := range s.events {
		e.Close()
	}
	s.shared.Close()
}
