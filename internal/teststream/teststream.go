// Package teststream moves bytes over a connection and sees to it that they arrive,
// for tests of what is below the connection.
package teststream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A transfer fails when so many looks in a row, a millisecond apart at the least, find
// that nothing has moved. There is no limit on the clock: how long it takes is the
// machine's business, and where that is away looks are as late as the bytes.
const looks = 20_000

// Move opens a connection to l with dial, sends size random bytes over it and ends
// its own half. It fails t unless all of them arrive, in order, and then the end. The
// listener stays the caller's; it accepts one connection.
func Move(t testing.TB, l net.Listener, dial func() (net.Conn, error), size int) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	var moved atomic.Int64
	received, sent := make(chan error, 1), make(chan error, 1)
	go func() { received <- receive(l, content(seed), int64(size), &moved) }()
	c, err := open(dial)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go func() { sent <- send(c, content(seed), int64(size)) }()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for seen, still := int64(0), 0; still < looks; {
		select {
		case err := <-received:
			if err != nil {
				t.Fatalf("%v; %d of %d bytes have arrived", err, moved.Load(), size)
			}
			return
		case err := <-sent:
			if err != nil {
				t.Fatalf("sending: %v", err)
			}
		case <-tick.C:
			still++
		}
		if now := moved.Load(); now != seen {
			seen, still = now, 0
		}
	}
	t.Fatalf("the stream stalled: %d of %d bytes have arrived", moved.Load(), size)
}

// open tries again where the kernel has found no neighbour: it asks for three seconds
// and no longer, which is short on a busy machine.
func open(dial func() (net.Conn, error)) (c net.Conn, err error) {
	for range 5 {
		if c, err = dial(); !errors.Is(err, syscall.EHOSTUNREACH) {
			break
		}
	}
	return c, err
}

// content is what is sent: without end, and the same for the same seed.
func content(seed uint64) *rand.ChaCha8 {
	return rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(seed >> 24)})
}

const chunk = 64 << 10

func send(c net.Conn, content io.Reader, size int64) error {
	if _, err := io.CopyBuffer(c, io.LimitReader(content, size), make([]byte, chunk)); err != nil {
		return err
	}
	return c.(interface{ CloseWrite() error }).CloseWrite()
}

// receive accepts a connection and compares what arrives.
func receive(l net.Listener, want io.Reader, size int64, moved *atomic.Int64) error {
	c, err := l.Accept()
	if err != nil {
		return err
	}
	defer c.Close()
	got, wanted := make([]byte, chunk), make([]byte, chunk)
	for {
		n, err := c.Read(got)
		_, _ = io.ReadFull(want, wanted[:n]) // without end
		if !bytes.Equal(got[:n], wanted[:n]) {
			return fmt.Errorf("what arrived is not what was sent, between bytes %d and %d", moved.Load(), moved.Load()+int64(n))
		}
		switch total := moved.Add(int64(n)); {
		case total > size || err == io.EOF && total < size:
			return fmt.Errorf("%d bytes arrived, %d were sent", total, size)
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("receiving: %w", err)
		}
	}
}
