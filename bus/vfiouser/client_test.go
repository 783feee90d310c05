package vfiouser

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nicd/bus"
)

// Our client's greeting, and what it asks for after it, up to the end of Dial:
// descriptions of 8 regions and 3 interrupts, the ids and the revision.
const ourCapabilities = `{"capabilities":{"max_msg_fds":16,"max_data_xfer_size":1048576,"pgsizes":4096,` +
	`"nicd_doorbells":true,"nicd_dma_base":0}}`

// The messages by their place in the attachment of a client to a server without
// extensions. Ids are the client's, which takes its 16 in turn.
const (
	atVersion    = 0
	atDeviceInfo = 1
	atRegion     = 2 // + index
	atIRQ        = 10
	atIDs        = 13
	atRevision   = 14
	attachSteps  = 15
)

func wireID(step int) string { return fmt.Sprintf("%02x00", step%16) }

// attachment is the golden conversation of an attachment: BAR0 of 4096 bytes,
// configuration space of 256, one INTx, two MSI-X.
func attachment() (requests, replies []string) {
	add := func(request, reply string) {
		id := wireID(len(requests))
		requests, replies = append(requests, id+request), append(replies, id+reply)
	}
	add(versionMessage("", "00000000", "0000 0100", ourCapabilities),
		versionMessage("", "01000000", "0000 0100", `{"capabilities":{"max_msg_fds":8}}`))
	add("0400 20000000 00000000 00000000  10000000 00000000 00000000 00000000",
		"0400 20000000 01000000 00000000  10000000 02000000 09000000 05000000")
	for i := range 8 {
		flags, size := "00000000", "0000000000000000"
		switch i {
		case 0:
			flags, size = "03000000", "0010000000000000"
		case 7:
			flags, size = "03000000", "0001000000000000"
		}
		index := fmt.Sprintf("%02x000000", i)
		add("0500 30000000 00000000 00000000  20000000 00000000"+index+"00000000 0000000000000000 0000000000000000",
			"0500 30000000 01000000 00000000  20000000"+flags+index+"00000000"+size+"0000000000000000")
	}
	for i, count := range []string{"01000000", "00000000", "02000000"} {
		index := fmt.Sprintf("%02x000000", i)
		add("0700 20000000 00000000 00000000  10000000 00000000"+index+"00000000",
			"0700 20000000 01000000 00000000  10000000 01000000"+index+count)
	}
	add("0900 20000000 00000000 00000000  0000000000000000 07000000 04000000",
		"0900 24000000 01000000 00000000  0000000000000000 07000000 04000000  8680d310")
	add("0900 20000000 00000000 00000000  0800000000000000 07000000 01000000",
		"0900 21000000 01000000 00000000  0800000000000000 07000000 01000000  02")
	return requests, replies
}

// play runs a client against a server that expects requests and sends replies,
// one for one, and returns both when the client is attached.
func play(t *testing.T, requests, replies []string, fds map[int][]int, o DialOptions) (*raw, *Client, error) {
	t.Helper()
	server, file, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	r := newRaw(t, server)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range replies {
			head := make([]byte, 16)
			if _, err := io.ReadFull(server, head); err != nil {
				return // the client has given up
			}
			got := append(head, make([]byte, host.Uint32(head[4:])-16)...)
			if _, err := io.ReadFull(server, got[16:]); err != nil {
				return
			}
			if want := wire(t, requests[i]); !slices.Equal(got, want) {
				t.Errorf("request %d is\n%swant\n%s", i, hex.Dump(got), hex.Dump(want))
			}
			b := wire(t, replies[i])
			var oob []byte
			if len(fds[i]) > 0 {
				oob = unix.UnixRights(fds[i]...)
			}
			if _, _, err := server.WriteMsgUnix(b, oob, nil); err != nil {
				return
			}
		}
	}()
	c, err := Open(context.Background(), file, o)
	if err != nil {
		server.Close() // the player may wait for more
	} else {
		t.Cleanup(func() { server.Close(); c.Close() })
	}
	<-done
	return r, c, err
}

func attached(t *testing.T, o DialOptions) (*raw, *Client) {
	t.Helper()
	requests, replies := attachment()
	r, c, err := play(t, requests, replies, nil, o)
	if err != nil {
		t.Fatal(err)
	}
	return r, c
}

func TestClientAttaches(t *testing.T) {
	_, c := attached(t, DialOptions{Name: "golden"})
	want := bus.Info{Address: "golden", Vendor: 0x8086, Device: 0x10d3, Revision: 2, Vectors: [3]int{1, 0, 2}}
	if got := c.Info(); got != want {
		t.Errorf("Info = %+v, want %+v", got, want)
	}
}

// background runs f, which waits for a reply, while the test plays the server.
func background[T any](f func() T) <-chan T {
	done := make(chan T, 1)
	go func() { done <- f() }()
	return done
}

func TestClientMessages(t *testing.T) {
	r, c := attached(t, DialOptions{})
	bar0 := bar(t, c, 0)

	bar0.Write32(0x38, 0x11223344)
	r.expect("posted write", wire(t, "ffff 0a00 24000000 10000000 00000000  3800000000000000 00000000 04000000 44332211"), 0)

	read := background(func() uint32 { return bar0.Read32(0x40) })
	r.expect("read", wire(t, "0f00 0900 20000000 00000000 00000000  4000000000000000 00000000 04000000"), 0)
	r.send(wire(t, "0f00 0900 24000000 01000000 00000000  4000000000000000 00000000 04000000 78563412"))
	if got := <-read; got != 0x12345678 {
		t.Errorf("Read32 = %#x", got)
	}

	config := background(func() error { return c.WriteConfig(4, 2, 0x106) })
	r.expect("config write", wire(t, "0000 0a00 22000000 00000000 00000000  0400000000000000 07000000 02000000 0601"), 0)
	r.send(wire(t, "0000 0a00 20000000 01000000 00000000  0400000000000000 07000000 02000000"))
	if err := <-config; err != nil {
		t.Error(err)
	}

	mem, err := bus.NewMemory("arena", 0x3000)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	mapped := background(func() error { return c.MapDMA(mem, 0x40000000) })
	r.expect("map", wire(t, "0100 0200 30000000 00000000 00000000  20000000 03000000 0000000000000000 0000004000000000 0030000000000000"), 1)
	r.send(wire(t, "0100 0200 10000000 01000000 00000000"))
	if err := <-mapped; err != nil {
		t.Error(err)
	}

	set := background(func() error { return c.SetInterrupts(bus.MSIX, newEvents(t, 2)) })
	r.expect("two vectors", wire(t, "0200 0800 24000000 00000000 00000000  14000000 24000000 02000000 00000000 02000000"), 2)
	r.send(wire(t, "0200 0800 10000000 01000000 00000000"))
	if err := <-set; err != nil {
		t.Error(err)
	}

	set = background(func() error { return c.SetInterrupts(bus.INTx, newEvents(t, 1)) })
	r.expect("MSI-X off", wire(t, "0300 0800 24000000 00000000 00000000  14000000 21000000 02000000 00000000 00000000"), 0)
	r.send(wire(t, "0300 0800 10000000 01000000 00000000"))
	r.expect("INTx", wire(t, "0400 0800 24000000 00000000 00000000  14000000 24000000 00000000 00000000 01000000"), 1)
	r.send(wire(t, "0400 0800 10000000 01000000 00000000"))
	if err := <-set; err != nil {
		t.Error(err)
	}

	unmask := background(func() error { return c.UnmaskInterrupt(0) })
	r.expect("unmask", wire(t, "0500 0800 24000000 00000000 00000000  14000000 11000000 00000000 00000000 01000000"), 0)
	r.send(wire(t, "0500 0800 10000000 01000000 00000000"))
	if err := <-unmask; err != nil {
		t.Error(err)
	}

	reset := background(func() error { return c.Reset(context.Background()) })
	r.expect("reset", wire(t, "0600 0d00 10000000 00000000 00000000"), 0)
	r.send(wire(t, "0600 0d00 10000000 21000000 5f000000"))
	if err := <-reset; !errors.Is(err, bus.ErrUnsupported) || !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("a refused reset = %v", err)
	}

	closed := background(c.Close)
	r.expect("INTx off", wire(t, "0700 0800 24000000 00000000 00000000  14000000 21000000 00000000 00000000 00000000"), 0)
	r.send(wire(t, "0700 0800 10000000 01000000 00000000"))
	r.expect("unmap", wire(t, "0800 0300 28000000 00000000 00000000  18000000 00000000 0000004000000000 0030000000000000"), 0)
	r.send(wire(t, "0800 0300 28000000 01000000 00000000  18000000 00000000 0000004000000000 0030000000000000"))
	if err := <-closed; err != nil {
		t.Error(err)
	}
	r.expectEnd("after Close")
}

// The server may ask for memory at any time, also before it answers.
func TestServerReadsAndWritesClientMemory(t *testing.T) {
	r, c := attached(t, DialOptions{})
	mem, err := bus.NewMemory("arena", 0x1000)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	copy(mem.Bytes()[0x10:], "abcd")
	mapped := background(func() error { return c.MapDMA(mem, 0x40000000) })
	r.receive()
	r.run([]exchange{
		{"read", "4400 0b00 20000000 00000000 00000000  1000004000000000 0400000000000000", nil,
			"4400 0b00 24000000 01000000 00000000  1000004000000000 0400000000000000 61626364", 0},
		{"write", "4400 0c00 24000000 00000000 00000000  1200004000000000 0400000000000000 78797a7a", nil,
			"4400 0c00 20000000 01000000 00000000  1200004000000000 0400000000000000", 0},
		{"posted write", "4400 0c00 21000000 10000000 00000000  1500004000000000 0100000000000000 31", nil, "", 0},
		{"read over the end", "4400 0b00 20000000 00000000 00000000  ff0f004000000000 0200000000000000", nil,
			refused("4400", "0b00", "0e000000"), 0},
		{"read far beyond", "4400 0b00 20000000 00000000 00000000  0000004000000000 ffffffffffffffff", nil,
			refused("4400", "0b00", wireEINVAL), 0},
		{"read elsewhere", "4400 0b00 20000000 00000000 00000000  0000003000000000 0100000000000000", nil,
			refused("4400", "0b00", "0e000000"), 0},
		{"write of a wrong count", "4400 0c00 24000000 00000000 00000000  1200004000000000 0500000000000000 78797a7a", nil,
			refused("4400", "0c00", wireEINVAL), 0},
		{"what servers do not ask", "4400 0d00 10000000 00000000 00000000", nil, refused("4400", "0d00", wireEOPNOSUPP), 0},
	})
	r.send(wire(t, "0f00 0200 10000000 01000000 00000000"))
	if err := <-mapped; err != nil {
		t.Fatal(err)
	}
	if got := string(mem.Bytes()[0x10:0x16]); got != "abxyz1" {
		t.Errorf("memory holds %q", got)
	}
}

// Requests of several goroutines are in flight together and are answered in any
// order.
func TestRepliesInAnyOrder(t *testing.T) {
	r, c := attached(t, DialOptions{})
	bar0 := bar(t, c, 0)
	const n = 10
	var reads [n]<-chan uint32
	for i := range reads {
		reads[i] = background(func() uint32 { return bar0.Read32(uint32(4 * i)) })
	}
	requests := make([][]byte, n)
	for i := range requests {
		requests[i], _ = r.receive()
	}
	for _, q := range slices.Backward(requests) {
		offset := q[16]
		host.PutUint32(q[4:], 36)
		host.PutUint32(q[8:], 1)
		r.send(append(q, offset+100, 0, 0, 0))
	}
	for i, read := range reads {
		if got := <-read; got != uint32(4*i+100) {
			t.Errorf("register %d reads %d", i, got)
		}
	}
}

// What a server may not do, while a read of BAR0 is waiting as message 15: the
// device is gone, the read is all ones, and nothing hangs.
func TestBadReplies(t *testing.T) {
	good := "0f00 0900 24000000 01000000 00000000  4000000000000000 00000000 04000000 78563412"
	for what, reply := range map[string]string{
		"other id":             "0e00" + good[4:],
		"id out of range":      "1100" + good[4:],
		"reply to a post":      "ffff" + good[4:],
		"other command":        "0f00 0a00" + good[9:],
		"other offset":         strings.Replace(good, "4000000000000000", "4400000000000000", 1),
		"too short":            "0f00 0900 22000000 01000000 00000000  4000000000000000 00000000 04000000 7856",
		"no body":              "0f00 0900 10000000 01000000 00000000",
		"too long":             "0f00 0900 25000000 01000000 00000000  4000000000000000 00000000 04000000 7856341200",
		"size below a header":  "0f00 0900 0f000000 01000000 00000000",
		"huge":                 "0f00 0900 ffffffff 01000000 00000000",
		"unknown type":         "0f00 0900 24000000 03000000 00000000",
		"huge command":         "0100 0b00 ffffffff 00000000 00000000",
		"twice":                good + good,
		"half a header":        "0f00 0900",
		"half a body":          good[:len(good)-8],
		"nothing, and the end": "",
	} {
		t.Run(what, func(t *testing.T) {
			r, c := attached(t, DialOptions{})
			read := background(func() uint32 { return bar(t, c, 0).Read32(0x40) })
			r.receive()
			r.send(wire(t, reply))
			if err := r.conn.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if got := <-read; got != bus.Gone && what != "twice" {
				t.Errorf("Read32 = %#x", got)
			}
			<-c.Lost()
			if err := c.Err(); !errors.Is(err, bus.ErrGone) {
				t.Errorf("Err = %v", err)
			}
		})
	}
}

func TestRefusedReadIsAllOnes(t *testing.T) {
	r, c := attached(t, DialOptions{})
	read := background(func() uint32 { return bar(t, c, 0).Read32(0x40) })
	r.receive()
	r.send(wire(t, refused("0f00", "0900", "00000000"))) // errno 0 is an error, too
	if got := <-read; got != bus.Gone {
		t.Errorf("Read32 = %#x", got)
	}
	if err := c.Err(); err != nil {
		t.Errorf("the device is gone: %v", err)
	}
}

func TestLateReply(t *testing.T) {
	r, c := attached(t, DialOptions{})
	c.timeout = 30 * time.Millisecond
	if got := bar(t, c, 0).Read32(0x40); got != bus.Gone {
		t.Errorf("Read32 = %#x", got)
	}
	if err := c.Err(); !errors.Is(err, bus.ErrGone) || !errors.Is(err, ErrProtocol) {
		t.Errorf("Err = %v", err)
	}
	r.receive()
	r.expectEnd("after the deadline")
}

// A server that stops reading fills the socket; the writer does not wait for
// ever.
func TestServerStopsReading(t *testing.T) {
	_, c := attached(t, DialOptions{})
	c.timeout = 50 * time.Millisecond
	bar0 := bar(t, c, 0)
	for c.Err() == nil {
		bar0.Write32(0, 1)
	}
	if err := c.Err(); !errors.Is(err, bus.ErrGone) {
		t.Errorf("Err = %v", err)
	}
}

func TestAttachRefusesNonsense(t *testing.T) {
	_, good := attachment()
	requests, _ := attachment()
	region := func(index int, flags, size, cap, total string) string {
		return wireID(atRegion+index) + "0500 30000000 01000000 00000000" + total + flags +
			fmt.Sprintf("%02x000000", index) + cap + size + "0000000000000000"
	}
	for what, e := range map[string]struct {
		step  int
		reply string
	}{
		"other major":               {atVersion, "0000 0100 14000000 01000000 00000000 0100 0000"},
		"newer minor":               {atVersion, "0000 0100 14000000 01000000 00000000 0000 0200"},
		"VERSION refused":           {atVersion, refused("0000", "0100", wireEINVAL)},
		"VERSION without NUL":       {atVersion, "0000 0100 16000000 01000000 00000000 0000 0000 7b7d"},
		"VERSION empty":             {atVersion, "0000 0100 10000000 01000000 00000000"},
		"no configuration space":    {atDeviceInfo, "0100 0400 20000000 01000000 00000000  10000000 02000000 07000000 05000000"},
		"device info too short":     {atDeviceInfo, "0100 0400 1c000000 01000000 00000000  10000000 02000000 07000000"},
		"other region":              {atRegion, region(1, "03000000", "0010000000000000", "00000000", "20000000")},
		"region larger than a BAR":  {atRegion, region(0, "03000000", "0000000000000100", "00000000", "20000000")},
		"description of 1 GiB":      {atRegion, region(0, "07000000", "0010000000000000", "00000000", "00000040")},
		"argsz below the structure": {atRegion, region(0, "07000000", "0010000000000000", "00000000", "1f000000")},
		"a million vectors":         {atIRQ + 2, wireID(atIRQ+2) + "0700 20000000 01000000 00000000  10000000 01000000 02000000 00001000"},
		"ids refused":               {atIDs, refused(wireID(atIDs), "0900", wireEINVAL)},
	} {
		t.Run(what, func(t *testing.T) {
			before := countFDs(t)
			replies := slices.Clone(good)
			replies[e.step] = e.reply
			r, _, err := play(t, requests, replies, nil, DialOptions{})
			if err == nil {
				t.Fatal("attached")
			}
			r.conn.Close()
			if after := countFDs(t); after > before {
				t.Errorf("%d descriptors before, %d after", before, after)
			}
		})
	}
}

// mappable is the attachment to a server whose BAR0 may be mapped: caps is what
// follows the region info of its second, complete description.
func mappable(capOffset, caps string, fds ...int) (requests, replies []string, at map[int][]int) {
	oldRequests, oldReplies := attachment()
	n := len(strings.ReplaceAll(caps, " ", "")) / 2
	argsz := fmt.Sprintf("%02x000000", 32+n)
	info := func(size int, flags, cap string) string {
		return fmt.Sprintf("0500 %02x000000 01000000 00000000", 16+size) + argsz + flags + "00000000" + cap +
			"0040000000000000 0020000000000000"
	}
	ask := func(argsz string) string {
		return "0500 30000000 00000000 00000000" + argsz + "00000000 00000000 00000000 0000000000000000 0000000000000000"
	}
	requests = slices.Clone(oldRequests[:atRegion])
	replies = slices.Clone(oldReplies[:atRegion])
	requests = append(requests, wireID(atRegion)+ask("20000000"), wireID(atRegion+1)+ask(argsz))
	replies = append(replies, wireID(atRegion)+info(32, "07000000", "00000000"), wireID(atRegion+1)+info(32+n, "0f000000", capOffset)+caps)
	for i := atRegion + 1; i < attachSteps; i++ { // the rest moves on by one
		requests = append(requests, wireID(i+1)+oldRequests[i][4:])
		replies = append(replies, wireID(i+1)+oldReplies[i][4:])
	}
	return requests, replies, map[int][]int{atRegion + 1: fds}
}

// sparse is the capability with one area.
func sparse(next, count, offset, size string) string {
	return "0100 0100" + next + count + "00000000" + offset + size
}

func TestMappedRegisters(t *testing.T) {
	fd := memfd(t, 0x6000)
	// An unknown capability comes first; the area is BAR0's second page.
	caps := "1000 0100 28000000" + sparse("00000000", "01000000", "0010000000000000", "0010000000000000")
	requests, replies, fds := mappable("20000000", caps, fd)
	r, c, err := play(t, requests, replies, fds, DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bar0 := bar(t, c, 0)
	bar0.Write32(0x1008, 0xabcdef01)
	var word [4]byte
	if _, err := unix.Pread(fd, word[:], 0x2000+0x1008); err != nil {
		t.Fatal(err)
	}
	if got := host.Uint32(word[:]); got != 0xabcdef01 {
		t.Errorf("the file has %#x", got)
	}
	host.PutUint32(word[:], 77)
	if _, err := unix.Pwrite(fd, word[:], 0x2000+0x1ffc); err != nil {
		t.Fatal(err)
	}
	if got := bar0.Read32(0x1ffc); got != 77 {
		t.Errorf("the register reads %d", got)
	}
	// Other registers of the device can't be posted any more.
	done := background(func() struct{} { bar0.Write32(0xffc, 1); return struct{}{} })
	r.expect("write before the area", wire(t, "0000 0a00 24000000 00000000 00000000  fc0f000000000000 00000000 04000000 01000000"), 0)
	r.send(wire(t, "0000 0a00 20000000 01000000 00000000  fc0f000000000000 00000000 04000000"))
	<-done
}

func TestBadMappings(t *testing.T) {
	const page0, page = "0000000000000000", "0010000000000000"
	one, none := "01000000", "00000000"
	short, good := memfd(t, 0x2000), memfd(t, 0x6000)
	for what, e := range map[string]struct {
		capOffset, caps string
		fds             []int
	}{
		"file too short":                {"20000000", sparse(none, one, page0, page), []int{short}},
		"whole region, file too short":  {"00000000", "", []int{short}},
		"no descriptor":                 {"20000000", sparse(none, one, page0, page), nil},
		"area beyond the region":        {"20000000", sparse(none, one, "0040000000000000", page), []int{good}},
		"area over the end":             {"20000000", sparse(none, one, "0030000000000000", "0020000000000000"), []int{good}},
		"area over the end of addition": {"20000000", sparse(none, one, "00f0ffffffffffff", "0020000000000000"), []int{good}},
		"empty area":                    {"20000000", sparse(none, one, page0, page0), []int{good}},
		"more areas than bytes":         {"20000000", sparse(none, "02000000", page0, page), []int{good}},
		"a billion areas":               {"20000000", sparse(none, "ffffffff", page0, page), []int{good}},
		"capability inside the info":    {"10000000", sparse(none, one, page0, page), []int{good}},
		"capability beyond the reply":   {"80000000", sparse(none, one, page0, page), []int{good}},
		"capability at the far end":     {"fcffffff", sparse(none, one, page0, page), []int{good}},
		"capability that is its next":   {"20000000", "1000 0100 20000000", []int{good}},
		"capability cut short":          {"20000000", "0100 0100 00000000", []int{good}},
	} {
		t.Run(what, func(t *testing.T) {
			before := countFDs(t)
			requests, replies, fds := mappable(e.capOffset, e.caps, e.fds...)
			if e.caps == "" {
				// MMAP without capabilities: the whole region, described in 32 bytes.
				replies[atRegion+1] = strings.Replace(replies[atRegion+1], "0f000000", "07000000", 1)
			}
			r, _, err := play(t, requests, replies, fds, DialOptions{})
			if err == nil {
				t.Fatal("attached")
			}
			r.conn.Close()
			if after := countFDs(t); after > before {
				t.Errorf("%d descriptors before, %d after", before, after)
			}
		})
	}
}

func TestOpenTakesOnlyUnixSockets(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	conn, err := net.Dial("tcp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	file, err := conn.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	if c, err := Open(context.Background(), file, DialOptions{}); err == nil {
		c.Close()
		t.Error("opened a TCP connection")
	}
	if _, err := Dial(context.Background(), "/nonexistent/socket", DialOptions{}); err == nil {
		t.Error("dialled nothing")
	}
}
