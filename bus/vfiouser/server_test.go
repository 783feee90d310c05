package vfiouser

import (
	"encoding/hex"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nicd/bus"
)

// versionMessage is VERSION, request or reply, with JSON.
func versionMessage(id, flags, version, json string) string {
	n := 16 + 4 + len(json) + 1
	size := string([]byte{byte(n), byte(n >> 8), 0, 0})
	return id + "0100" + hex.EncodeToString([]byte(size)) + flags + "00000000" + version +
		hex.EncodeToString([]byte(json)) + "00"
}

// What QEMU 11.1.3 proposes, 214 bytes with the header; it takes no longer reply.
const qemuProposal = `{"capabilities": {"pgsizes": 4096, "max_msg_fds": 16, "max_dma_maps": 65535, ` +
	`"max_data_xfer_size": 1048576, "migration": {"max_bitmap_size": 268435456, "pgsize": 4096}, "write_multiple": true}}`

func TestVersionReplies(t *testing.T) {
	const c, r = "00000000", "01000000"
	for _, e := range []exchange{
		{"QEMU",
			versionMessage("0000", c, "0000 0000", qemuProposal), nil,
			versionMessage("0000", r, "0000 0000", `{"capabilities":{"max_msg_fds":16,"max_data_xfer_size":1048576,`+
				`"max_dma_maps":4096,"pgsizes":4096,"write_multiple":true}}`), 0},
		{"cloud-hypervisor",
			versionMessage("0000", c, "0000 0100", `{"capabilities":{"max_msg_fds":1,"max_data_xfer_size":1048576,"migration":{"pgsize":4096}}}`), nil,
			versionMessage("0000", r, "0000 0100", `{"capabilities":{"max_msg_fds":16,"max_data_xfer_size":1048576}}`), 0},
		{"SPDK", plainVersion, nil, plainVersionReply, 0},
		{"libvfio-user's client, with a channel of its own for DMA",
			versionMessage("3412", c, "0000 0200", `{"capabilities":{"max_msg_fds":32,"twin_socket":{"supported":true}}}`), nil,
			versionMessage("3412", r, "0000 0100", `{"capabilities":{"max_msg_fds":16}}`), 0},
		{"our client",
			versionMessage("0000", c, "0000 0100", `{"capabilities":{"nicd_doorbells":true,"nicd_dma_base":0}}`), nil,
			versionMessage("0000", r, "0000 0100", `{"capabilities":{"nicd_doorbells":true,"nicd_dma_base":4294967296}}`), 0},
		{"nothing",
			versionMessage("0000", c, "0000 0100", `{}`), nil,
			versionMessage("0000", r, "0000 0100", `{"capabilities":{}}`), 0},
	} {
		client, _ := serveRaw(t, newFakeDevice(t), ServeOptions{})
		client.run([]exchange{e})
		if e.what == "QEMU" && (len(wire(t, e.request)) != 214 || len(wire(t, e.reply)) > 214) {
			t.Errorf("QEMU's request has %d bytes, our reply %d", len(wire(t, e.request)), len(wire(t, e.reply)))
		}
	}
}

func TestVersionRefused(t *testing.T) {
	const c = "00000000"
	for what, request := range map[string]string{
		"other major":    "0000 0100 14000000 00000000 00000000  0100 0000",
		"too short":      "0000 0100 12000000 00000000 00000000  0000",
		"no NUL":         "0000 0100 16000000 00000000 00000000  0000 0000 7b7d",
		"no JSON":        versionMessage("0000", c, "0000 0000", `hello`),
		"wrong type":     versionMessage("0000", c, "0000 0000", `{"capabilities":{"max_msg_fds":"16"}}`),
		"negative":       versionMessage("0000", c, "0000 0000", `{"capabilities":{"max_msg_fds":-1}}`),
		"before VERSION": "0000 0400 20000000 00000000 00000000  10000000 00000000 00000000 00000000",
	} {
		client, served := serveRaw(t, newFakeDevice(t), ServeOptions{})
		b := wire(t, request)
		client.send(b)
		client.expect(what, wire(t, refused("0000", hex.EncodeToString(b[2:4]), wireEINVAL)), 0)
		client.expectEnd(what)
		if err := <-served; !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: ServeConn = %v", what, err)
		}
	}
}

func TestDescriptions(t *testing.T) {
	client, _ := serveRaw(t, newFakeDevice(t), ServeOptions{})
	client.greet().run([]exchange{
		{"VERSION again", plainVersion, nil, refused("0900", "0100", wireEINVAL), 0},
		{"device: resettable PCI, 9 regions, 5 interrupts",
			"0100 0400 20000000 00000000 00000000  10000000 00000000 00000000 00000000", nil,
			"0100 0400 20000000 01000000 00000000  10000000 03000000 09000000 05000000", 0},
		{"device, argsz with the header as cloud-hypervisor counts",
			"0100 0400 20000000 00000000 00000000  20000000 00000000 00000000 00000000", nil,
			"0100 0400 20000000 01000000 00000000  10000000 03000000 09000000 05000000", 0},
		{"BAR0",
			"0200 0500 30000000 00000000 00000000  20000000 00000000 00000000 00000000  0000000000000000 0000000000000000", nil,
			"0200 0500 30000000 01000000 00000000  20000000 03000000 00000000 00000000  0010000000000000 0000000000000000", 0},
		{"BAR2, absent",
			"0200 0500 30000000 00000000 00000000  20000000 00000000 02000000 00000000  0000000000000000 0000000000000000", nil,
			"0200 0500 30000000 01000000 00000000  20000000 00000000 02000000 00000000  0000000000000000 0000000000000000", 0},
		{"configuration space",
			"0200 0500 30000000 00000000 00000000  20000000 00000000 07000000 00000000  0000000000000000 0000000000000000", nil,
			"0200 0500 30000000 01000000 00000000  20000000 03000000 07000000 00000000  0001000000000000 0000000000000000", 0},
		{"VGA, absent",
			"0200 0500 30000000 00000000 00000000  20000000 00000000 08000000 00000000  0000000000000000 0000000000000000", nil,
			"0200 0500 30000000 01000000 00000000  20000000 00000000 08000000 00000000  0000000000000000 0000000000000000", 0},
		{"BAR0, with a body of 4064 bytes as SPDK sends",
			"0200 0500 f00f0000 00000000 00000000  e00f0000 00000000 00000000 00000000" + strings.Repeat("00", 4064-16), nil,
			"0200 0500 30000000 01000000 00000000  20000000 03000000 00000000 00000000  0010000000000000 0000000000000000", 0},
		{"region that no device has",
			"0200 0500 30000000 00000000 00000000  20000000 00000000 09000000 00000000  0000000000000000 0000000000000000", nil,
			refused("0200", "0500", wireEINVAL), 0},
		{"argsz too small",
			"0200 0500 30000000 00000000 00000000  1f000000 00000000 00000000 00000000  0000000000000000 0000000000000000", nil,
			refused("0200", "0500", wireEINVAL), 0},
		{"INTx",
			"0300 0700 20000000 00000000 00000000  10000000 00000000 00000000 00000000", nil,
			"0300 0700 20000000 01000000 00000000  10000000 01000000 00000000 01000000", 0},
		{"MSI-X",
			"0300 0700 20000000 00000000 00000000  10000000 00000000 02000000 00000000", nil,
			"0300 0700 20000000 01000000 00000000  10000000 01000000 02000000 05000000", 0},
		{"error interrupt",
			"0300 0700 20000000 00000000 00000000  10000000 00000000 03000000 00000000", nil,
			"0300 0700 20000000 01000000 00000000  10000000 01000000 03000000 01000000", 0},
		{"interrupt that no device has",
			"0300 0700 20000000 00000000 00000000  10000000 00000000 05000000 00000000", nil,
			"0300 0700 20000000 01000000 00000000  10000000 01000000 05000000 00000000", 0},
		{"reset", "0400 0d00 10000000 00000000 00000000", nil, "0400 0d00 10000000 01000000 00000000", 0},
		{"retired command", "0500 0e00 10000000 00000000 00000000", nil, refused("0500", "0e00", wireEINVAL), 0},
		{"migration", "0500 1000 10000000 00000000 00000000", nil, refused("0500", "1000", wireEINVAL), 0},
		{"unknown command", "0500 ff7f 10000000 00000000 00000000", nil, refused("0500", "ff7f", wireEINVAL), 0},
		{"bare header where a body belongs", "0500 0500 10000000 00000000 00000000", nil, refused("0500", "0500", wireEINVAL), 0},
	})
}

// access is REGION_READ or REGION_WRITE, or its reply.
func access(cmd, flags, offset, region, count, data string) string {
	n := byte(32 + len(strings.ReplaceAll(data, " ", ""))/2)
	return "0600" + cmd + hex.EncodeToString([]byte{n}) + "000000" + flags + "00000000" + offset + region + count + data
}

func TestRegionAccess(t *testing.T) {
	const (
		read, write    = "0900", "0a00"
		c, r, posted   = "00000000", "01000000", "10000000"
		bar1, cfg, vga = "01000000", "07000000", "08000000"
		absent, none   = "03000000", "efbeadde"
		one, two, four = "01000000", "02000000", "04000000"
		eight          = "08000000"
	)
	at := func(n byte) string { return hex.EncodeToString([]byte{n, 0, 0, 0, 0, 0, 0, 0}) }
	const end, beyond = "fc0f000000000000", "0010000000000000"
	d := newFakeDevice(t)
	client, _ := serveRaw(t, d, ServeOptions{})
	client.greet().run([]exchange{
		{"write 4", access(write, c, at(8), bar1, four, "78563412"), nil, access(write, r, at(8), bar1, four, ""), 0},
		{"read 4", access(read, c, at(8), bar1, four, ""), nil, access(read, r, at(8), bar1, four, "78563412"), 0},
		{"read 2 of a register", access(read, c, at(10), bar1, two, ""), nil, access(read, r, at(10), bar1, two, "3412"), 0},
		{"read 1 of a register", access(read, c, at(9), bar1, one, ""), nil, access(read, r, at(9), bar1, one, "56"), 0},
		{"write 8, two registers", access(write, c, at(16), bar1, eight, "01000000 02000000"), nil, access(write, r, at(16), bar1, eight, ""), 0},
		{"read 8", access(read, c, at(16), bar1, eight, ""), nil, access(read, r, at(16), bar1, eight, "01000000 02000000"), 0},
		{"write 2", access(write, c, at(18), bar1, two, "ffee"), nil, access(write, r, at(18), bar1, two, ""), 0},
		{"write 1", access(write, c, at(21), bar1, one, "dd"), nil, access(write, r, at(21), bar1, one, ""), 0},
		{"posted write", access(write, posted, at(24), bar1, four, "05000000"), nil, "", 0},
		{"posted write beyond the end", access(write, posted, beyond, bar1, four, "05000000"), nil, "", 0},
		{"posted write to nowhere", access(write, posted, at(0), none, four, "05000000"), nil, "", 0},
		{"posted write of a wrong count", access(write, posted, at(0), bar1, eight, "05000000"), nil, "", 0},
		{"read after posted writes", access(read, c, at(24), bar1, four, ""), nil, access(read, r, at(24), bar1, four, "05000000"), 0},
		{"read over the end", access(read, c, end, bar1, eight, ""), nil, access(read, r, end, bar1, eight, "00000000 ffffffff"), 0},
		{"read beyond the end", access(read, c, beyond, bar1, four, ""), nil, access(read, r, beyond, bar1, four, "ffffffff"), 0},
		{"write beyond the end", access(write, c, beyond, bar1, four, "00000000"), nil, access(write, r, beyond, bar1, four, ""), 0},
		{"read an absent region", access(read, c, at(0), absent, four, ""), nil, access(read, r, at(0), absent, four, "ffffffff"), 0},
		{"read VGA", access(read, c, at(0), vga, one, ""), nil, access(read, r, at(0), vga, one, "ff"), 0},
		{"read nowhere", access(read, c, at(0), none, four, ""), nil, refused("0600", read, wireEINVAL), 0},
		{"read at the end of the address space", access(read, c, "fcffffffffffffff", bar1, eight, ""), nil, refused("0600", read, wireEINVAL), 0},
		{"read too much", access(read, c, at(0), bar1, "01001000", ""), nil, refused("0600", read, wireEINVAL), 0},
		{"read nothing", access(read, c, at(0), bar1, "00000000", ""), nil, access(read, r, at(0), bar1, "00000000", ""), 0},
		{"write of a wrong count", access(write, c, at(0), bar1, eight, "05000000"), nil, refused("0600", write, wireEINVAL), 0},
		{"config: ids", access(read, c, at(0), cfg, four, ""), nil, access(read, r, at(0), cfg, four, "ad15b007"), 0},
		{"config: write 1", access(write, c, at(0x41), cfg, one, "aa"), nil, access(write, r, at(0x41), cfg, one, ""), 0},
		{"config: write 2", access(write, c, at(0x42), cfg, two, "bbcc"), nil, access(write, r, at(0x42), cfg, two, ""), 0},
		{"config: odd read of 7", access(read, c, at(0x3f), cfg, "07000000", ""), nil, access(read, r, at(0x3f), cfg, "07000000", "00 00aabbcc 0000"), 0},
		{"config beyond the end", access(read, c, "0001000000000000", cfg, four, ""), nil, access(read, r, "0001000000000000", cfg, four, "ffffffff"), 0},
	})
	if got := d.bars[1].takeWrites(); len(got) != 4 {
		t.Errorf("the device saw %+v", got)
	}
	if got, want := d.bars[1].narrow, []narrowWrite{{18, 2, 0xeeff}, {21, 1, 0xdd}}; !slices.Equal(got, want) {
		t.Errorf("the device saw narrow writes %+v, want %+v", got, want)
	}
}

// QEMU reads all of configuration space in one message.
func TestWholeConfigSpaceInOneRead(t *testing.T) {
	d := newFakeDevice(t)
	for i := range d.config {
		d.config[i] = byte(i)
	}
	client, _ := serveRaw(t, d, ServeOptions{})
	client.greet().run([]exchange{{
		"256 bytes",
		"0600 0900 20000000 00000000 00000000 0000000000000000 07000000 00010000", nil,
		"0600 0900 20010000 01000000 00000000 0000000000000000 07000000 00010000" + hex.EncodeToString(d.config[:]), 0,
	}})
}

func TestWriteMulti(t *testing.T) {
	d := newFakeDevice(t)
	client, _ := serveRaw(t, d, ServeOptions{})
	entries := "1000000000000000 01000000 04000000 0700000000000000" + "1800000000000000 01000000 08000000 0800000009000000"
	client.greet().run([]exchange{
		{"posted", "0700 0f00 48000000 10000000 00000000 0200000000000000" + entries, nil, "", 0},
		{"answered", "0700 0f00 48000000 00000000 00000000 0200000000000000" + entries, nil,
			"0700 0f00 18000000 01000000 00000000 0200000000000000", 0},
		{"wrong count", "0700 0f00 48000000 00000000 00000000 0300000000000000" + entries, nil, refused("0700", "0f00", wireEINVAL), 0},
		{"huge count", "0700 0f00 48000000 00000000 00000000 ffffffffffffffff" + entries, nil, refused("0700", "0f00", wireEINVAL), 0},
		{"entry of 9 bytes", "0700 0f00 30000000 00000000 00000000 0100000000000000" +
			"1000000000000000 01000000 09000000 0700000000000000", nil, refused("0700", "0f00", wireEINVAL), 0},
	})
	var got []uint32
	for _, w := range d.bars[1].takeWrites() {
		got = append(got, w.offset, w.value)
	}
	once := []uint32{0x10, 7, 0x18, 8, 0x1c, 9}
	if !slices.Equal(got, slices.Concat(once, once)) {
		t.Errorf("the device saw %v", got)
	}
}

// mapMessage and unmapMessage are DMA_MAP and DMA_UNMAP of addresses in pages.
func mapMessage(flags, offset byte, addr string, pages byte) string {
	return "0800 0200 30000000 00000000 00000000  20000000" + hex.EncodeToString([]byte{flags}) + "000000" +
		"00" + hex.EncodeToString([]byte{offset << 4}) + "000000000000" + addr + "00" + hex.EncodeToString([]byte{pages << 4}) + "000000000000"
}

func unmapMessage(msgFlags, flags, addr string, pages byte) string {
	return "0800 0300 28000000" + msgFlags + "00000000  18000000" + flags + addr + "00" + hex.EncodeToString([]byte{pages << 4}) + "000000000000"
}

func TestDMAMessages(t *testing.T) {
	const (
		mapped       = "0800 0200 10000000 01000000 00000000"
		a, b, end    = "0000001000000000", "0010001000000000", "00f0ffffffffffff"
		rom          = "0000fcff00000000"
		c, r         = "00000000", "01000000"
		exactly, all = "00000000", "02000000"
	)
	no := func(errno string) string { return refused("0800", "0200", errno) }
	notUn := func(errno string) string { return refused("0800", "0300", errno) }
	file, other := memfd(t, 3*4096), memfd(t, 3*4096)
	d := newFakeDevice(t)
	client, _ := serveRaw(t, d, ServeOptions{})
	client.greet().run([]exchange{
		{"RAM", mapMessage(3, 1, a, 2), []int{file}, mapped, 0},
		{"the same again", mapMessage(3, 1, a, 2), []int{file}, mapped, 0},
		{"the same of another file", mapMessage(3, 1, a, 2), []int{other}, no(wireEEXIST), 0},
		{"the same at another offset", mapMessage(3, 0, a, 2), []int{file}, no(wireEEXIST), 0},
		{"the same without a file", mapMessage(3, 1, a, 2), nil, no(wireEEXIST), 0},
		{"overlap", mapMessage(3, 0, b, 2), []int{file}, no(wireEEXIST), 0},
		{"ROM without a file", mapMessage(1, 0, rom, 4), nil, mapped, 0},
		{"ROM again", mapMessage(1, 0, rom, 4), nil, mapped, 0},
		{"ROM with a file, read only", mapMessage(1, 0, "0000000100000000", 1), []int{file}, mapped, 0},
		{"last page of the address space", mapMessage(3, 0, end, 1), nil, mapped, 0},
		{"beyond the address space", mapMessage(3, 0, end, 2), nil, no(wireEINVAL), 0},
		{"nothing", mapMessage(3, 0, "0000002000000000", 0), nil, no(wireEINVAL), 0},
		{"no access", mapMessage(0, 0, "0000002000000000", 1), nil, no(wireEINVAL), 0},
		{"unknown flag", mapMessage(7, 0, "0000002000000000", 1), nil, no(wireEINVAL), 0},
		{"part of a page", mapMessage(3, 0, "0100002000000000", 1), nil, no(wireEINVAL), 0},
		{"two files", mapMessage(3, 0, "0000002000000000", 1), []int{file, other}, no(wireEINVAL), 0},
		{"more than the file has", mapMessage(3, 2, "0000002000000000", 2), []int{file}, no(wireEINVAL), 0},
		{"unmap a part", unmapMessage(c, exactly, a, 1), nil, notUn(wireENOENT), 0},
		{"unmap too much", unmapMessage(c, exactly, a, 3), nil, notUn(wireENOENT), 0},
		{"unmap with an unknown flag", unmapMessage(c, "04000000", a, 2), nil, notUn(wireEINVAL), 0},
		{"unmap, with the descriptor that SPDK sends", unmapMessage(c, exactly, a, 2), []int{file}, unmapMessage(r, exactly, a, 2), 0},
		{"unmap again", unmapMessage(c, exactly, a, 2), nil, notUn(wireENOENT), 0},
		{"map in other pieces", mapMessage(3, 0, b, 1), []int{file}, mapped, 0},
		{"unmap all", unmapMessage(c, all, "0000000000000000", 0), nil, unmapMessage(r, all, "0000000000000000", 0), 0},
		{"map after all", mapMessage(3, 0, rom, 1), []int{file}, mapped, 0},
	})
	want := []string{"map 0x10000000+0x2000", "unmap 0x10000000", "map 0x10001000+0x1000", "unmap 0x10001000", "map 0xfffc0000+0x1000"}
	if got := d.takeLog(); !slices.Equal(got, want) {
		t.Errorf("the device saw %q, want %q", got, want)
	}
	d.refuseMaps(bus.ErrUnsupported)
	client.run([]exchange{
		{"device refuses", mapMessage(3, 0, a, 1), []int{file}, no(wireEOPNOSUPP), 0},
		{"strictly nothing was kept", unmapMessage(c, exactly, a, 1), nil, notUn(wireENOENT), 0},
	})
	strict, _ := serveRaw(t, newFakeDevice(t), ServeOptions{RequireSealed: true})
	strict.greet().run([]exchange{{"unsealed", mapMessage(3, 0, a, 1), []int{file}, no(wireEPERM), 0}})
}

// irqMessage is DEVICE_SET_IRQS.
func irqMessage(flags, index, start, count byte, data ...byte) string {
	n := byte(20 + len(data))
	return hex.EncodeToString(append([]byte{
		0x0b, 0, 8, 0, 16 + n, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		n, 0, 0, 0, flags, 0, 0, 0, index, 0, 0, 0, start, 0, 0, 0, count, 0, 0, 0}, data...))
}

const irqDone = "0b00 0800 10000000 01000000 00000000"

func TestSetIRQsShapes(t *testing.T) {
	no := refused("0b00", "0800", wireEINVAL)
	_, fds := eventfds(t, 17)
	d := newFakeDevice(t)
	client, _ := serveRaw(t, d, ServeOptions{})
	client.greet().run([]exchange{
		{"turn off what is off", irqMessage(0x21, 2, 0, 0), nil, irqDone, 0},
		{"unmask what is off", irqMessage(0x11, 0, 0, 1), nil, no, 0},
		{"trigger what is off", irqMessage(0x21, 2, 0, 1), nil, no, 0},
		{"INTx", irqMessage(0x24, 0, 0, 1), fds[:1], irqDone, 0},
		{"handled INTx", irqMessage(0x11, 0, 0, 1), nil, irqDone, 0},
		{"error interrupt", irqMessage(0x24, 3, 0, 1), fds[:1], irqDone, 0},
		{"request interrupt", irqMessage(0x24, 4, 0, 1), fds[:1], irqDone, 0},
		{"mask the error interrupt", irqMessage(0x09, 3, 0, 1), nil, no, 0},
		{"INTx off", irqMessage(0x21, 0, 0, 0), nil, irqDone, 0},
		{"reserve a vector", irqMessage(0x24, 2, 0, 1), nil, irqDone, 0},
		{"one vector of many", irqMessage(0x24, 2, 3, 1), fds[:1], irqDone, 0},
		{"all vectors", irqMessage(0x24, 2, 0, 5), fds[:5], irqDone, 0},
		{"take some away", irqMessage(0x24, 2, 1, 2), nil, irqDone, 0},
		{"fewer descriptors than vectors", irqMessage(0x24, 2, 0, 3), fds[:2], no, 0},
		{"more descriptors than vectors", irqMessage(0x24, 2, 0, 1), fds[:2], no, 0},
		{"more descriptors than allowed", irqMessage(0x24, 2, 0, 17), fds[:17], no, 0},
		{"vector after the last", irqMessage(0x24, 2, 5, 1), fds[:1], no, 0},
		{"vectors over the end", irqMessage(0x24, 2, 4, 2), fds[:2], no, 0},
		{"descriptors with a bool", irqMessage(0x22, 2, 0, 1, 1), fds[:1], no, 0},
		{"descriptors with none", irqMessage(0x21, 2, 0, 1), fds[:1], no, 0},
		{"no vectors, not at 0", irqMessage(0x21, 2, 1, 0), nil, no, 0},
		{"no action", irqMessage(0x04, 2, 0, 1), fds[:1], no, 0},
		{"two actions", irqMessage(0x34, 2, 0, 1), fds[:1], no, 0},
		{"two kinds of data", irqMessage(0x25, 2, 0, 1), fds[:1], no, 0},
		{"unknown flag", irqMessage(0x64, 2, 0, 1), fds[:1], no, 0},
		{"bools missing", irqMessage(0x22, 2, 0, 2, 1), nil, no, 0},
		{"mask by eventfd", irqMessage(0x0c, 2, 0, 1), fds[:1], no, 0},
		{"index that no device has", irqMessage(0x24, 5, 0, 1), fds[:1], no, 0},
		{"not an eventfd", irqMessage(0x24, 2, 0, 1), []int{memfd(t, 4096)}, no, 0},
		{"off", irqMessage(0x21, 2, 0, 0), nil, irqDone, 0},
		{"two of four MSI", irqMessage(0x24, 1, 0, 2), fds[:2], irqDone, 0},
		{"MSI off", irqMessage(0x21, 1, 0, 0), nil, irqDone, 0},
	})
	want := []string{"interrupts INTx 1", "unmask 0", "interrupts INTx 0",
		"interrupts MSI-X 5", "interrupts MSI-X 5", "interrupts MSI-X 5", "interrupts MSI-X 5", "interrupts MSI-X 0",
		"interrupts MSI 2", "interrupts MSI 0"}
	if got := d.takeLog(); !slices.Equal(got, want) {
		t.Errorf("the device saw %q, want %q", got, want)
	}
}

// What the device signals while a vector is masked or has no eventfd arrives
// when that is over, and is one interrupt.
func TestInterruptsAreLatched(t *testing.T) {
	events, fds := eventfds(t, 2)
	d := newFakeDevice(t)
	client, _ := serveRaw(t, d, ServeOptions{})
	signalled := func(what string, e *bus.Event, want uint64) {
		t.Helper()
		if got := e.Take(); got != want {
			t.Errorf("%s: signalled %d times, want %d", what, got, want)
		}
	}
	client.greet().run([]exchange{{"reserve", irqMessage(0x24, 2, 0, 1), nil, irqDone, 0}})
	d.fire(1)
	d.fire(1)
	client.run([]exchange{{"assign", irqMessage(0x24, 2, 1, 1), fds[:1], irqDone, 0}})
	signalled("assigned late", events[0], 1)

	client.run([]exchange{{"mask", irqMessage(0x09, 2, 1, 1), nil, irqDone, 0}})
	d.fire(1)
	signalled("masked", events[0], 0)
	client.run([]exchange{{"unmask", irqMessage(0x12, 2, 0, 3, 0, 1, 0), nil, irqDone, 0}})
	signalled("unmasked", events[0], 1)

	client.run([]exchange{{"replace", irqMessage(0x24, 2, 1, 1), fds[1:], irqDone, 0}})
	d.fire(1)
	signalled("the old one", events[0], 0)
	signalled("the new one", events[1], 1)

	client.run([]exchange{{"trigger by bools", irqMessage(0x22, 2, 0, 3, 0, 1, 0), nil, irqDone, 0}})
	signalled("triggered", events[1], 1)
	client.run([]exchange{{"trigger all", irqMessage(0x21, 2, 1, 1), nil, irqDone, 0}})
	signalled("triggered", events[1], 1)
}

// KVM's way to say that INTx was handled: an eventfd that the server waits for.
func TestUnmaskByEventfd(t *testing.T) {
	events, fds := eventfds(t, 2)
	d := newFakeDevice(t)
	client, _ := serveRaw(t, d, ServeOptions{})
	client.greet().run([]exchange{
		{"INTx", irqMessage(0x24, 0, 0, 1), fds[:1], irqDone, 0},
		{"resample", irqMessage(0x14, 0, 0, 1), fds[1:], irqDone, 0},
	})
	ctx := soon(t)
	for range 3 {
		d.takeLog()
		events[1].Signal()
		for !slices.Contains(d.takeLog(), "unmask 0") {
			if ctx.Err() != nil {
				t.Fatal("never unmasked")
			}
		}
	}
	client.run([]exchange{
		{"no resample", irqMessage(0x14, 0, 0, 1), nil, irqDone, 0},
		{"off", irqMessage(0x21, 0, 0, 0), nil, irqDone, 0},
	})
}

func TestAlerts(t *testing.T) {
	events, fds := eventfds(t, 2)
	d := newFakeDevice(t)
	c, end := connect(t, d, ServeOptions{})
	for i, index := range []uint32{irqError, irqRequest} {
		q := setIRQs{flags: irqDataEventFD | irqTrigger, index: index, count: 1}
		if err := c.do(cmdSetIRQs, q.append, fds[i:i+1], 0); err != nil {
			t.Fatal(err)
		}
	}
	d.refuseMaps(bus.ErrGone)
	mem, err := bus.NewMemory("arena", 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	if err := c.MapDMA(mem, 0); !errors.Is(err, bus.ErrGone) {
		t.Errorf("MapDMA of a device that is gone = %v", err)
	}
	if events[0].Take() == 0 {
		t.Error("no error interrupt")
	}
	if events[1].Take() != 0 {
		t.Error("the device is wanted back already")
	}
	end()
	if events[1].Take() == 0 {
		t.Error("no request interrupt")
	}
}

// A client without our extension gets shadow ioeventfds as libvfio-user lays
// them out, in two steps, and wakes the device by storing and signalling.
func TestShadowIOEventFDs(t *testing.T) {
	d := newFakeDevice(t)
	client, _ := serveRaw(t, d, ServeOptions{})
	entry := func(offset, shadow string) string {
		return offset + "0400000000000000 00000000 02000000 00000000 01000000" + shadow + "0000000000000000"
	}
	client.greet().run([]exchange{{
		"how much", "0c00 0600 20000000 00000000 00000000  10000000 00000000 00000000 00000000", nil,
		"0c00 0600 20000000 01000000 00000000  d0000000 00000000 00000000 04000000", 0,
	}, {
		"region without", "0c00 0600 20000000 00000000 00000000  00100000 00000000 01000000 00000000", nil,
		"0c00 0600 20000000 01000000 00000000  10000000 00000000 01000000 00000000", 0,
	}, {
		"no region", "0c00 0600 20000000 00000000 00000000  00100000 00000000 09000000 00000000", nil,
		refused("0c00", "0600", wireEINVAL), 0,
	}})
	client.send(wire(t, "0c00 0600 20000000 00000000 00000000  d0000000 00000000 00000000 00000000"))
	fds := client.expect("entries", wire(t, "0c00 0600 e0000000 01000000 00000000  d0000000 00000000 00000000 04000000"+
		entry("0006000000000000", "4800000000000000")+entry("0806000000000000", "4c00000000000000")+
		entry("1006000000000000", "5000000000000000")+entry("1806000000000000", "5400000000000000")), 2)

	page, err := bus.OpenMemory(descriptors(fds).takeFile(1, "page"))
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	d.page().Arm()
	bus.Word(page.Bytes(), 0x4c).Store(77)
	if _, err := unix.Write(fds[0], []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	if err := d.page().Sleep(soon(t)); err != nil {
		t.Fatal(err)
	}
	if got := d.page().Value(bellFirst + 1).Load(); got != 77 {
		t.Errorf("the device sees %d", got)
	}
}

func TestMessagesInPieces(t *testing.T) {
	d := newFakeDevice(t)
	client, _ := serveRaw(t, d, ServeOptions{})
	client.greet()
	request := wire(t, access("0900", "00000000", "0000000000000000", "07000000", "04000000", ""))
	reply := wire(t, access("0900", "01000000", "0000000000000000", "07000000", "04000000", "ad15b007"))
	for cut := 1; cut < len(request); cut++ {
		client.send(request[:cut])
		client.send(request[cut:])
		client.expect("in two pieces", reply, 0)
	}
	client.send(append(request, request...))
	client.expect("two at once", reply, 0)
	client.expect("two at once", reply, 0)
	// A descriptor goes with the message that it came with, also when the one
	// before it is still in the socket.
	client.send(request)
	client.send(wire(t, mapMessage(3, 0, "0000001000000000", 1)), memfd(t, 4096))
	client.expect("the one before", reply, 0)
	client.expect("the one with it", wire(t, "0800 0200 10000000 01000000 00000000"), 0)
	if d.memoryAt(0x10000000) == nil {
		t.Error("not mapped")
	}
}

func TestBadMessagesEndTheConnection(t *testing.T) {
	for what, e := range map[string]exchange{
		"size below the header": {request: "0100 0900 0f000000 00000000 00000000", reply: refused("0100", "0900", wireEINVAL)},
		"size 0":                {request: "0100 0900 00000000 00000000 00000000", reply: refused("0100", "0900", wireEINVAL)},
		"too large":             {request: "0100 0a00 21001000 00000000 00000000", reply: refused("0100", "0a00", wireEINVAL)},
		"a reply":               {request: "0100 0900 10000000 01000000 00000000"},
		"an unknown type":       {request: "0100 0900 10000000 02000000 00000000"},
	} {
		client, served := serveRaw(t, newFakeDevice(t), ServeOptions{})
		e.what = what
		client.greet().run([]exchange{e})
		client.expectEnd(what)
		if err := <-served; !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: ServeConn = %v", what, err)
		}
	}
	client, served := serveRaw(t, newFakeDevice(t), ServeOptions{})
	client.greet().send(wire(t, "0100 0900 20000000 00000000 00000000 0000"))
	client.conn.Close()
	if err := <-served; !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("half a message: ServeConn = %v", err)
	}
	client, served = serveRaw(t, newFakeDevice(t), ServeOptions{})
	client.greet().conn.Close()
	if err := <-served; err != nil {
		t.Errorf("a client that leaves: ServeConn = %v", err)
	}
}

// The server keeps no descriptor that it refused.
func TestRefusedDescriptorsAreClosed(t *testing.T) {
	_, fds := eventfds(t, 17)
	file := memfd(t, 4096)
	client, _ := serveRaw(t, newFakeDevice(t), ServeOptions{})
	client.greet()
	before := countFDs(t)
	no := func(id, cmd string) string { return refused(id, cmd, wireEINVAL) }
	client.run([]exchange{
		{"unknown command", "0500 ff7f 10000000 00000000 00000000", fds[:3], no("0500", "ff7f"), 0},
		{"command without", access("0900", "00000000", "0000000000000000", "07000000", "04000000", ""), fds[:1], no("0600", "0900"), 0},
		{"reset", "0400 0d00 10000000 00000000 00000000", fds[:1], no("0400", "0d00"), 0},
		{"too many", irqMessage(0x24, 2, 0, 17), fds, no("0b00", "0800"), 0},
		{"wrong count", irqMessage(0x24, 2, 0, 2), fds[:3], no("0b00", "0800"), 0},
		{"one of them no eventfd", irqMessage(0x24, 2, 0, 3), []int{fds[0], fds[1], file}, no("0b00", "0800"), 0},
		{"short body", "0b00 0800 12000000 00000000 00000000 0000", fds[:2], no("0b00", "0800"), 0},
		{"map of nothing", mapMessage(3, 0, "0000000000000000", 0), []int{file}, no("0800", "0200"), 0},
		{"map of two", mapMessage(3, 0, "0000000000000000", 1), []int{file, file}, no("0800", "0200"), 0},
		{"map of too much", mapMessage(3, 0, "0000000000000000", 2), []int{file}, no("0800", "0200"), 0},
	})
	if after := countFDs(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}
