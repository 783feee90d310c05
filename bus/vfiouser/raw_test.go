package vfiouser

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nicd/bus"
)

// Tests that speak the protocol byte by byte, at either end. The bytes are
// written down as a little-endian host has them on the wire, without this
// package's encoders.

// wire turns hexadecimal digits into bytes; blanks group fields.
func wire(t testing.TB, groups ...string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(strings.Join(groups, ""), " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// raw is one end of a connection.
type raw struct {
	t    testing.TB
	conn *net.UnixConn
}

func newRaw(t testing.TB, uc *net.UnixConn) *raw {
	t.Cleanup(func() { uc.Close() })
	_ = uc.SetDeadline(time.Now().Add(20 * time.Second))
	return &raw{t, uc}
}

func (r *raw) send(msg []byte, fds ...int) {
	r.t.Helper()
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	if n, _, err := r.conn.WriteMsgUnix(msg, oob, nil); n != len(msg) || err != nil {
		r.t.Fatalf("sent %d of %d bytes: %v", n, len(msg), err)
	}
}

// receive reads one message and its descriptors.
func (r *raw) receive() ([]byte, []int) {
	r.t.Helper()
	head, oob := make([]byte, 16), make([]byte, 1024)
	n, oobn, _, _, err := r.conn.ReadMsgUnix(head, oob)
	if n != 16 || err != nil {
		r.t.Fatalf("header of %d bytes: %v", n, err)
	}
	fds := parseRights(oob[:oobn])
	r.t.Cleanup(fds.close)
	body := make([]byte, host.Uint32(head[4:])-16)
	if _, err := io.ReadFull(r.conn, body); err != nil {
		r.t.Fatalf("body: %v", err)
	}
	return append(head, body...), fds
}

func (r *raw) expect(what string, want []byte, wantFDs int) []int {
	r.t.Helper()
	got, fds := r.receive()
	if !bytes.Equal(got, want) || len(fds) != wantFDs {
		r.t.Fatalf("%s: with %d descriptors\n%swant with %d\n%s", what, len(fds), hex.Dump(got), wantFDs, hex.Dump(want))
	}
	return fds
}

// expectEnd reads to the end of the connection, which has to be next.
func (r *raw) expectEnd(what string) {
	r.t.Helper()
	if n, err := r.conn.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		r.t.Errorf("%s: %d more bytes, %v; want the end", what, n, err)
	}
}

// serveRaw serves dev to a raw client. served returns how that ended.
func serveRaw(t testing.TB, dev bus.Device, o ServeOptions) (r *raw, served <-chan error) {
	t.Helper()
	server, file, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	uc, err := fileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	r = newRaw(t, uc)
	ctx, cancel := context.WithCancel(context.Background())
	done, over := make(chan error, 1), make(chan struct{})
	go func() { done <- ServeConn(ctx, server, dev, o); close(over) }()
	t.Cleanup(func() { cancel(); <-over })
	return r, done
}

// exchange is a request of a raw client and the server's reply; "" is none.
type exchange struct {
	what     string
	request  string
	fds      []int
	reply    string
	replyFDs int
}

func (r *raw) run(exchanges []exchange) {
	r.t.Helper()
	for _, e := range exchanges {
		r.send(wire(r.t, e.request), e.fds...)
		if e.reply != "" {
			r.expect(e.what, wire(r.t, e.reply), e.replyFDs)
		}
	}
}

// Wire forms of VERSION without JSON and its reply.
const (
	plainVersion      = "0900 0100 14000000 00000000 00000000  0000 0100"
	plainVersionReply = "0900 0100 14000000 01000000 00000000  0000 0100"
)

// greet negotiates without any capability.
func (r *raw) greet() *raw {
	r.t.Helper()
	r.run([]exchange{{what: "VERSION", request: plainVersion, reply: plainVersionReply}})
	return r
}

// refused is the reply to message id with an errno.
func refused(id, cmd, errno string) string {
	return id + cmd + "10000000 21000000" + errno
}

const (
	wireENOENT    = "02000000"
	wireEEXIST    = "11000000"
	wireEINVAL    = "16000000"
	wireEPERM     = "01000000"
	wireEOPNOSUPP = "5f000000"
)

// eventfds makes n of them.
func eventfds(t testing.TB, n int) (events []*bus.Event, fds []int) {
	t.Helper()
	events = newEvents(t, n)
	for _, e := range events {
		fds = append(fds, int(e.File().Fd()))
	}
	return events, fds
}

// memfd makes one of size bytes, unsealed.
func memfd(t testing.TB, size int64) int {
	t.Helper()
	fd, err := unix.MemfdCreate("raw", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	return fd
}
