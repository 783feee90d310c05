package teststream

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
)

// source is a connection that somebody else has written.
type source struct {
	net.Conn
	io.Reader
}

func (s source) Read(b []byte) (int, error) { return s.Reader.Read(b) }
func (s source) Close() error               { return nil }

type listener struct {
	net.Listener
	accepts net.Conn
}

func (l listener) Accept() (net.Conn, error) { return l.accepts, nil }

// TestReceive: what does not arrive as it was sent is found out.
func TestReceive(t *testing.T) {
	const size, seed = 100_000, 7
	sent := make([]byte, size+1)
	_, _ = io.ReadFull(content(seed), sent)
	wrong := bytes.Clone(sent[:size])
	wrong[size-1] ^= 1
	swapped := bytes.Clone(sent[:size])
	copy(swapped, sent[1460:2920])
	copy(swapped[1460:], sent[:1460])
	for _, c := range []struct{ arrives, says string }{
		{string(sent[:size]), "<nil>"},
		{string(sent[:size-1]), "99999 bytes arrived, 100000 were sent"},
		{string(sent), "100001 bytes arrived, 100000 were sent"},
		{string(wrong), "not what was sent"},
		{string(swapped), "not what was sent"},
		{"", "0 bytes arrived"},
	} {
		l := listener{accepts: source{Reader: strings.NewReader(c.arrives)}}
		err := receive(l, content(seed), size, new(atomic.Int64))
		if !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%d bytes: %v, want %q", len(c.arrives), err, c.says)
		}
	}
}

func TestMove(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, size := range []int{0, 1, chunk, 3*chunk + 1} {
		Move(t, l, func() (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) }, size)
	}
}
