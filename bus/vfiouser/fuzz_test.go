package vfiouser

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"nicd/bus"
	"nicd/bus/internal/vfiocap"
)

// The fuzzers feed bytes to an end of a real connection. What they look for is
// a panic, a hang and a descriptor or mapping that stays.

// discard reads all that comes from c until its end.
func discard(c *net.UnixConn) *sync.WaitGroup {
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = io.Copy(io.Discard, c) })
	return &wg
}

// feed writes b to one end and closes it for writing.
func feed(t *testing.T, c *net.UnixConn, b []byte) {
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Write(b); err != nil {
		return // the other end has had enough
	}
	_ = c.CloseWrite()
}

func FuzzServer(f *testing.F) {
	greeting := wire(f, plainVersion)
	for _, seed := range []string{
		"",
		plainVersion,
		"0100 0400 20000000 00000000 00000000  10000000 00000000 00000000 00000000",
		"0200 0500 30000000 00000000 00000000  20000000 00000000 00000000 00000000  0000000000000000 0000000000000000",
		"0c00 0600 20000000 00000000 00000000  d0000000 00000000 00000000 00000000",
		"0300 0700 20000000 00000000 00000000  10000000 00000000 00000000 00000000",
		irqMessage(0x24, 2, 0, 5) + irqMessage(0x22, 2, 0, 2, 1, 1) + irqMessage(0x09, 2, 0, 1) + irqMessage(0x11, 2, 0, 1),
		mapMessage(3, 0, "0000001000000000", 1) + unmapMessage("00000000", "00000000", "0000001000000000", 1),
		access("0900", "00000000", "0000000000000000", "07000000", "04000000", ""),
		access("0a00", "10000000", "0006000000000000", "00000000", "04000000", "01000000"),
		"0700 0f00 48000000 00000000 00000000 0200000000000000" +
			"1000000000000000 01000000 04000000 0700000000000000" + "1800000000000000 01000000 08000000 0800000009000000",
		"0400 0d00 10000000 00000000 00000000",
	} {
		f.Add(wire(f, seed), true)
	}
	f.Add(wire(f, versionMessage("0000", "00000000", "0000 0000", qemuProposal)), false)
	f.Fuzz(func(t *testing.T, messages []byte, greeted bool) {
		d := newFakeDevice(t)
		server, file, err := Pair()
		if err != nil {
			t.Fatal(err)
		}
		client, err := fileConn(file)
		if err != nil {
			t.Fatal(err)
		}
		replies := discard(client)
		done := make(chan error, 1)
		go func() { done <- ServeConn(context.Background(), server, d, ServeOptions{}) }()
		if greeted {
			messages = append(greeting, messages...)
		}
		feed(t, client, messages)
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Fatal("the server hangs")
		}
		client.Close()
		replies.Wait()
		if len(d.maps) != 0 || len(d.events) != 0 {
			t.Errorf("%d mappings and %d events are left", len(d.maps), len(d.events))
		}
	})
}

// FuzzClient attaches to a server that sends what the fuzzer says, whatever the
// client asks. The golden conversation is one seed, so that mutations get far.
func FuzzClient(f *testing.F) {
	for _, conversation := range []func() []string{
		func() []string { _, replies := attachment(); return replies },
		func() []string {
			_, replies, _ := mappable("20000000", sparse("00000000", "01000000", "0010000000000000", "0010000000000000"))
			return replies
		},
	} {
		var seed []byte
		for _, reply := range conversation() {
			seed = append(seed, wire(f, reply)...)
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, replies []byte) {
		server, file, err := Pair()
		if err != nil {
			t.Fatal(err)
		}
		fed := make(chan struct{})
		go func() { defer close(fed); answerWith(server, replies) }()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		c, err := Open(ctx, file, DialOptions{Timeout: 50 * time.Millisecond})
		if err == nil {
			if r, err := c.Region(bus.BAR0); err == nil {
				r.Read32(0)
				r.Write32(0, 1)
			}
			c.Close()
		}
		if ctx.Err() != nil {
			t.Fatal("the client hangs")
		}
		<-fed
		server.Close()
	})
}

// answerWith answers each message of a client with the next of replies, and ends
// the conversation after the last.
func answerWith(c *net.UnixConn, replies []byte) {
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	defer c.CloseWrite()
	head := make([]byte, headerSize)
	for len(replies) > 0 {
		if _, err := io.ReadFull(c, head); err != nil {
			return
		}
		if _, err := io.CopyN(io.Discard, c, int64(host.Uint32(head[4:]))-headerSize); err != nil {
			return
		}
		n := len(replies)
		if n >= headerSize {
			n = min(n, int(max(host.Uint32(replies[4:]), headerSize)))
		}
		if _, err := c.Write(replies[:n]); err != nil {
			return
		}
		replies = replies[n:]
	}
}

// FuzzReplies feeds the parsers that follow offsets and counts, which a
// conversation rarely reaches.
func FuzzReplies(f *testing.F) {
	f.Add(wire(f, "30000000 0f000000 00000000 20000000 0040000000000000 0000000000000000"+
		sparse("00000000", "01000000", "0010000000000000", "0010000000000000")))
	f.Add(wire(f, "40000000 00000000 00000000 01000000"+
		"0006000000000000 0400000000000000 00000000 02000000 00000000 01000000 4800000000000000 0000000000000000"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if info, err := vfiocap.Parse(b); err == nil {
			areas, err := vfiocap.Areas(b, info)
			for _, a := range areas {
				if err == nil && (a.Offset > info.Size || a.Size > info.Size-a.Offset) {
					t.Errorf("area %+v of a region of %#x bytes", a, info.Size)
				}
			}
		}
		head, err := parseIOFDs(b)
		if err != nil {
			return
		}
		entries, err := parseShadowFDs(b, head)
		if err != nil || len(entries) == 0 {
			return
		}
		r := &region{size: 1 << 32}
		for _, e := range entries {
			r.addBell(e, entries[0], 0)
		}
		for i, bell := range r.bells {
			if bell > bus.MaxDoorbells {
				t.Errorf("register %d is doorbell %d", i, bell)
			}
		}
		if _, err := parseVersion(b); err != nil {
			return
		}
	})
}
