package qemu_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"nicd/bus"
	"nicd/drivers/e1000"
	"nicd/drivers/vmxnet3"
	"nicd/framework"
	"nicd/framework/drivertest/rig"
	"nicd/sim"
	e1000model "nicd/sim/e1000"
	vmxnet3model "nicd/sim/vmxnet3"
)

// These tests hold docs/devices.md to the truth: what it says of QEMU's models and
// of this project's is tried on both, and where a knob makes ours like QEMU's,
// with that too.

// difference is a row of the table in docs/devices.md.
type difference struct {
	name  string // as there
	model string
	probe func(t *testing.T, b *bench) string
	// What the probe finds.
	ours, qemu string
	// The knob, if there is one.
	e1000   func(*e1000model.Options)
	vmxnet3 func(*vmxnet3model.Options)
}

var differences = []difference{
	{"82540EM: CTRL and STATUS at power-on", "82540EM", registers(eCTRL, eSTATUS), "0x140240, 0x80", "0x140240, 0x80080781", nil, nil},
	{"82574L: CTRL and STATUS at power-on", "82574L", registers(eCTRL, eSTATUS), "0x140241, 0x80480", "0x140241, 0x80281", nil, nil},
	{"82540EM: CTRL.RST", "82540EM", resetKeeps, "resets", "keeps registers", func(o *e1000model.Options) { o.Variation.NoReset = true }, nil},
	{"82574L: CTRL.RST", "82574L", resetKeeps, "resets", "keeps registers", func(o *e1000model.Options) { o.Variation.NoReset = true }, nil},
	{"82540EM: registers", "82540EM", absent, "all there", "without CTRL_EXT FCTTV TIPG FCRTL RXDCTL TIDV RXCSUM", nil, nil},
	{"82540EM: I/O window", "82540EM", window, "works", "ignored", nil, nil},
	{"82540EM: capabilities", "82540EM", capabilities, "0x1 at 0xdc", "none", nil, nil},
	{"82540EM: receive after a write of RCTL", "82540EM", deaf, "at once", "after a second", func(o *e1000model.Options) { o.Variation.DeafAfterRCTL = time.Second }, nil},
	{"82540EM: received checksums", "82540EM", ignores, "looked at", "ignored", func(o *e1000model.Options) { o.Variation.NoRxChecksum = true }, nil},
	{"82540EM: IC of legacy descriptors", "82540EM", legacyChecksum, "inserted", "not inserted", func(o *e1000model.Options) { o.Variation.NoLegacyChecksum = true }, nil},
	{"82574L: frame check sequence kept", "82574L", keptFCS, "1 descriptor", "2 descriptors", func(o *e1000model.Options) { o.Variation.SplitFCS = true }, nil},
	{"82540EM: frame check sequence kept", "82540EM", keptFCS, "1 descriptor", "1 descriptor", nil, nil},
	{"82574L: ICR with MSI-X", "82574L", icrKeeps, "cleared", "kept", func(o *e1000model.Options) { o.Variation.ICRKeeps = true }, nil},
	{"82574L: EIAC and IMS", "82574L", eiacMasks, "not masked", "masked", func(o *e1000model.Options) { o.Variation.EIACMasks = true }, nil},
	{"82540EM: frames of 20 bytes with TCTL.PSP", "82540EM", shortFrame, "60 bytes", "20 bytes", nil, nil},
	{"82540EM: null receive buffers", "82540EM", nullBuffer, "passed over with DD", "passed over with DD", nil, nil},
	{"82540EM: unicast and the multicast table", "82540EM", hashedUnicast, "dropped", "received", func(o *e1000model.Options) { o.Variation.HashesUnicast = true }, nil},
	{"82574L: unicast and the multicast table", "82574L", hashedUnicast, "dropped", "received", func(o *e1000model.Options) { o.Variation.HashesUnicast = true }, nil},
	{"82540EM: TSO of full segments only", "82540EM", fullSegments, "2 segments", "2 segments and an empty one", func(o *e1000model.Options) { o.Variation.EmptyTSOTail = true }, nil},
	{"82540EM: frames for which there are too few descriptors", "82540EM", tooFew, "wait", "dropped", func(o *e1000model.Options) { o.Variation.DropsWhenShort = true }, nil},
	{"82544GC: ITR", "82544GC", registerAfter(0xC4, 0x190), "0x0", "0x190", nil, nil},
	{"82544GC: odd words of the multicast table", "82544GC", oddWord, "spill into even ones", "stand alone", nil, nil},
	{"82574L: TSO", "82574L", tsoCut, "segments", "IP fragments", nil, nil},
	{"vmxnet3: revisions", "vmxnet3", vmxRegister(0), "0xf", "0x1", nil, func(o *vmxnet3model.Options) { o.Revision = 1 }},
	{"vmxnet3: link speed", "vmxnet3", vmxSpeed, "10000", "1000", nil, func(o *vmxnet3model.Options) { o.SpeedMbps = 1000 }},
	{"vmxnet3: ACTIVATE after RESET", "vmxnet3", vmxAfterReset, "succeeds", "fails", nil, func(o *vmxnet3model.Options) { o.Variations.ResetForgetsAddress = true }},
	{"vmxnet3: ACTIVATE twice", "vmxnet3", vmxTwice, "fails", "succeeds", nil, func(o *vmxnet3model.Options) { o.Variations.ActivateTwice = true }},
	{"vmxnet3: MAC address and ACTIVATE", "vmxnet3", vmxMAC, "kept", "permanent one", nil, func(o *vmxnet3model.Options) { o.Variations.ActivateRestoresMAC = true }},
	{"vmxnet3: frames longer than the MTU", "vmxnet3", vmxOversize, "dropped", "received", nil, func(o *vmxnet3model.Options) { o.Variations.AcceptOversize = true }},
	{"vmxnet3: completion without cq", "vmxnet3", vmxComplete, "none", "always", nil, func(o *vmxnet3model.Options) { o.Variations.AlwaysComplete = true }},
	{"vmxnet3: received checksums", "vmxnet3", vmxChecksum, "verified", "nothing known", nil, nil},
	{"vmxnet3: RSS", "vmxnet3", vmxSpread, "2 queues", "1 queue", nil, nil},
	{"vmxnet3: frames without a buffer", "vmxnet3", vmxDry, "pause the peer", "dropped", nil, nil},
	{"vmxnet3: IMR set while INTx is asserted", "vmxnet3", vmxForgets, "kept", "forgotten", nil, func(o *vmxnet3model.Options) { o.Variations.MaskForgets = true }},
	{"vmxnet3: TSO", "vmxnet3", tsoCut, "segments", "IP fragments", nil, nil},
}

// bench is a device that a probe looks at, with a driver or none.
type bench struct {
	*rig.Station
	model   string
	mem     *bus.Memory
	base    uint64
	context context.Context
}

func TestDifferences(t *testing.T) {
	needQEMU(t)
	text, err := os.ReadFile("../../docs/devices.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range differences {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(string(text), "| "+d.name+" |") {
				t.Errorf("not in docs/devices.md")
			}
			t.Run("QEMU", func(t *testing.T) { d.try(t, qemuBench(t, d.model), d.qemu) })
			t.Run("ours", func(t *testing.T) { d.try(t, simBench(t, &d, false), d.ours) })
			if d.e1000 != nil || d.vmxnet3 != nil {
				t.Run("knob", func(t *testing.T) { d.try(t, simBench(t, &d, true), d.qemu) })
			}
		})
	}
}

func (d *difference) try(t *testing.T, b *bench, want string) {
	t.Helper()
	if got := d.probe(t, b); got != want {
		t.Errorf("%s, docs say %s", got, want)
	}
}

const benchMemory = 1 << 20

func qemuBench(t *testing.T, model string) *bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	s, err := rig.NewQEMUStation(ctx, rig.QEMUOptions{Model: model, MAC: rig.MAC})
	if err != nil {
		t.Fatal(err)
	}
	return &bench{Station: s, model: model, context: ctx}
}

func simBench(t *testing.T, d *difference, knob bool) *bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	var model sim.Model
	if d.model == "vmxnet3" {
		o := vmxnet3model.Options{MAC: rig.MAC}
		if knob {
			d.vmxnet3(&o)
		}
		model = vmxnet3model.New(o)
	} else {
		kind, err := e1000model.KindOf(d.model)
		if err != nil {
			t.Fatal(err)
		}
		o := e1000model.Options{Kind: kind, MAC: rig.MAC}
		if knob {
			d.e1000(&o)
		}
		model = e1000model.New(o)
	}
	s, err := rig.NewStation(model, rig.SimOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return &bench{Station: s, model: d.model, context: ctx}
}

// raw makes the device usable without a driver.
func (b *bench) raw(t *testing.T) *bench {
	t.Helper()
	t.Cleanup(func() {
		b.Bus.Close()
		b.Close()
		if b.mem != nil {
			b.mem.Close()
		}
	})
	var err error
	if b.mem, err = bus.NewMemory("bench", benchMemory); err != nil {
		t.Fatal(err)
	}
	if b.base = b.Bus.Info().DMABase; b.base == 0 {
		b.base = 1 << 28
	}
	if err := b.Bus.MapDMA(b.mem, b.base); err != nil {
		t.Fatal(err)
	}
	if err := bus.EnableMaster(b.Bus); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) region(t *testing.T, index int) bus.Region {
	t.Helper()
	r, err := b.Bus.Region(index)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// until waits for what may never come, for so long.
func until(limit time.Duration, ok func() bool) bool {
	for end := time.Now().Add(limit); !ok(); time.Sleep(50 * time.Microsecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// Registers of the 8254x and the 82574.
const (
	eCTRL, eSTATUS           = 0x00, 0x08
	eICR, eICS, eIMS         = 0xC0, 0xC8, 0xD0
	eEIAC, eIVAR             = 0xDC, 0xE4
	eRCTL, eTCTL             = 0x100, 0x400
	eRDBAL, eTDBAL           = 0x2800, 0x3800
	eRXCSUM, eRAL            = 0x5000, 0x5400
	atLength, atHead, atTail = 8, 16, 24 // of a ring's registers

	ringLength = 16
	rxRing     = 0
	txRing     = 4096
	txFrame    = 8192
	rxBuffers  = 16384
)

func registers(offsets ...uint32) func(*testing.T, *bench) string {
	return func(t *testing.T, b *bench) string {
		r := b.raw(t).region(t, bus.BAR0)
		var all []string
		for _, o := range offsets {
			all = append(all, fmt.Sprintf("%#x", r.Read32(o)))
		}
		return strings.Join(all, ", ")
	}
}

// registerAfter is what a register reads after a value was written to it.
func registerAfter(offset, value uint32) func(*testing.T, *bench) string {
	return func(t *testing.T, b *bench) string {
		r := b.raw(t).region(t, bus.BAR0)
		r.Write32(offset, value)
		return fmt.Sprintf("%#x", r.Read32(offset))
	}
}

// oddWord writes words 0 and 1 of the multicast table.
func oddWord(t *testing.T, b *bench) string {
	const mta = 0x5200
	r := b.raw(t).region(t, bus.BAR0)
	r.Write32(mta, 1)
	r.Write32(mta+4, 2)
	if r.Read32(mta) == 1 {
		return "stand alone"
	}
	return "spill into even ones"
}

func resetKeeps(t *testing.T, b *bench) string {
	r := b.raw(t).region(t, bus.BAR0)
	r.Write32(eTDBAL, 0x1230)
	r.Write32(eCTRL, r.Read32(eCTRL)|1<<26)
	if !until(time.Second, func() bool { return r.Read32(eCTRL)&(1<<26) == 0 }) {
		return "does not end"
	}
	if r.Read32(eTDBAL) == 0x1230 {
		return "keeps registers"
	}
	return "resets"
}

// absent lists registers that do not keep what is written to them.
func absent(t *testing.T, b *bench) string {
	r := b.raw(t).region(t, bus.BAR0)
	var names []string
	for _, reg := range []struct {
		name   string
		offset uint32
	}{{"CTRL_EXT", 0x18}, {"FCTTV", 0x170}, {"TIPG", 0x410}, {"FCRTL", 0x2160}, {"RXDCTL", 0x2828}, {"TIDV", 0x3820}, {"TXDCTL", 0x3828}, {"RXCSUM", 0x5000}} {
		r.Write32(reg.offset, 0x10)
		first := r.Read32(reg.offset)
		r.Write32(reg.offset, 0x8)
		if r.Read32(reg.offset) == first {
			names = append(names, reg.name)
		}
	}
	if len(names) == 0 {
		return "all there"
	}
	return "without " + strings.Join(names, " ")
}

// window writes a register through the I/O BAR.
func window(t *testing.T, b *bench) string {
	r := b.raw(t).region(t, bus.BAR0)
	io := b.region(t, bus.BAR1)
	io.Write32(0, eTDBAL)
	io.Write32(4, 0x1230)
	if r.Read32(eTDBAL) == 0x1230 {
		return "works"
	}
	return "ignored"
}

func capabilities(t *testing.T, b *bench) string {
	b.raw(t)
	var ids []string
	at, err := b.Bus.ReadConfig(0x34, 1)
	if status, _ := b.Bus.ReadConfig(6, 2); err != nil || status&0x10 == 0 {
		at = 0
	}
	for ; at != 0; at, _ = b.Bus.ReadConfig(int(at)+1, 1) {
		id, _ := b.Bus.ReadConfig(int(at), 1)
		ids = append(ids, fmt.Sprintf("%#x at %#x", id, at))
	}
	if len(ids) == 0 {
		return "none"
	}
	return strings.Join(ids, ", ")
}

// receive sets up a receive ring with so many buffers; those that skip names have
// no address.
func (b *bench) receive(t *testing.T, rctl uint32, skip int) bus.Region {
	r := b.region(t, bus.BAR0)
	for i := range ringLength {
		addr := b.base + rxBuffers + uint64(i)*2048
		if i < skip {
			addr = 0
		}
		binary.LittleEndian.PutUint64(b.mem.Bytes()[rxRing+16*i:], addr)
		binary.LittleEndian.PutUint64(b.mem.Bytes()[rxRing+16*i+8:], 0)
	}
	r.Write32(eRDBAL, uint32(b.base+rxRing))
	r.Write32(eRDBAL+4, uint32((b.base+rxRing)>>32))
	r.Write32(eRDBAL+atLength, 16*ringLength)
	r.Write32(eRDBAL+atHead, 0)
	r.Write32(eRDBAL+atTail, ringLength-1)
	r.Write32(eRAL, binary.LittleEndian.Uint32(rig.MAC[:]))
	r.Write32(eRAL+4, uint32(binary.LittleEndian.Uint16(rig.MAC[4:]))|1<<31)
	r.Write32(eRXCSUM, 3<<8)
	r.Write32(eCTRL, r.Read32(eCTRL)|1<<6)
	r.Write32(eRCTL, rctl|1<<1|1<<15)
	up := func() bool { return r.Read32(eSTATUS)&2 != 0 }
	if !until(10*time.Second, up) {
		t.Fatal("link does not come up")
	}
	return r
}

// status is the word of a receive descriptor that has its status, once it is done.
func (b *bench) status(t *testing.T, i int) uint32 {
	t.Helper()
	w := bus.Word(b.mem.Bytes(), rxRing+16*i+12)
	if !until(10*time.Second, func() bool { return w.Load()&1 != 0 }) {
		t.Fatal("nothing received")
	}
	return w.Load()
}

func (b *bench) inject(t *testing.T, frame []byte) {
	t.Helper()
	if err := b.Peer.Send(b.context, sim.FrameOf(frame)); err != nil {
		t.Fatal(err)
	}
}

const stripFCS = 1 << 26

func deaf(t *testing.T, b *bench) string {
	r := b.raw(t).receive(t, stripFCS, 0)
	b.inject(t, rig.Frame{Payload: 60}.Build())
	b.status(t, 0)
	r.Write32(eRCTL, r.Read32(eRCTL))
	r.Read32(eSTATUS)
	start := time.Now()
	b.inject(t, rig.Frame{Payload: 60}.Build())
	b.status(t, 1)
	if time.Since(start) > 900*time.Millisecond {
		return "after a second"
	}
	return "at once"
}

func ignores(t *testing.T, b *bench) string {
	b.raw(t).receive(t, stripFCS, 0)
	b.inject(t, rig.Frame{Payload: 60}.Build())
	switch s := b.status(t, 0); {
	case s&(1<<2) != 0:
		return "ignored"
	case s&(1<<5) != 0:
		return "looked at"
	}
	return "neither"
}

func keptFCS(t *testing.T, b *bench) string {
	r := b.raw(t).receive(t, 0, 0)
	b.inject(t, rig.Frame{Payload: 60}.Build())
	b.status(t, 0)
	n := 0
	until(10*time.Second, func() bool { n = int(r.Read32(eRDBAL + atHead)); return b.status(t, n-1)&2 != 0 })
	if n == 1 {
		return "1 descriptor"
	}
	return fmt.Sprintf("%d descriptors", n)
}

// hashedUnicast sends a frame for another address whose hash is in the table.
func hashedUnicast(t *testing.T, b *bench) string {
	const mta, words = 0x5200, 128
	r := b.raw(t).receive(t, stripFCS, 0)
	for i := range uint32(words) {
		r.Write32(mta+4*i, ^uint32(0))
	}
	b.inject(t, rig.Frame{To: framework.MAC{2, 9, 9, 9, 9, 9}, Payload: 200}.Build())
	b.inject(t, rig.Frame{Payload: 60}.Build())
	b.status(t, 0)
	if n := binary.LittleEndian.Uint16(b.mem.Bytes()[rxRing+8:]); n > 200 {
		return "received"
	}
	return "dropped"
}

// tooFew sends a frame for four buffers while there are two, and then a short one.
func tooFew(t *testing.T, b *bench) string {
	const longFrames, left = 1 << 5, 2
	r := b.raw(t).receive(t, stripFCS|longFrames, 0)
	r.Write32(eRDBAL+atTail, 1+left)
	b.inject(t, rig.Frame{Payload: 60}.Build())
	b.status(t, 0) // it receives, by now
	big, small := rig.Frame{Payload: 8000}.Build(), rig.Frame{Payload: 60}.Build()
	sent := make(chan error, 1)
	go func() { sent <- b.Peer.Send(b.context, sim.FrameOf(big), sim.FrameOf(small)) }()
	defer func() {
		if err := <-sent; err != nil {
			t.Error(err)
		}
	}()
	second := bus.Word(b.mem.Bytes(), rxRing+16+12)
	if until(300*time.Millisecond, func() bool { return second.Load()&1 != 0 }) {
		return "dropped"
	}
	r.Write32(eRDBAL+atTail, ringLength-1)
	b.status(t, 4)
	if n := binary.LittleEndian.Uint16(b.mem.Bytes()[rxRing+16*4+8:]); int(n) != len(big)%2048 {
		return fmt.Sprintf("end with %d bytes", n)
	}
	return "wait"
}

func nullBuffer(t *testing.T, b *bench) string {
	b.raw(t).receive(t, stripFCS, 1)
	b.inject(t, rig.Frame{Payload: 60}.Build())
	first := bus.Word(b.mem.Bytes(), rxRing+12)
	second := bus.Word(b.mem.Bytes(), rxRing+16+12)
	until(2*time.Second, func() bool { return second.Load()&1 != 0 })
	switch a, c := first.Load(), second.Load(); {
	case a&1 != 0 && a&2 == 0 && c&2 != 0:
		return "passed over with DD"
	case a&2 != 0:
		return "used as they are"
	case c&2 != 0:
		return "passed over without DD"
	}
	return "stop the queue"
}

// transmit sends the frame at txFrame with a legacy descriptor.
func (b *bench) transmit(t *testing.T, n int, command, sumOffset, sumStart uint32, tctl uint32) []byte {
	t.Helper()
	r := b.region(t, bus.BAR0)
	r.Write32(eCTRL, r.Read32(eCTRL)|1<<6)
	until(10*time.Second, func() bool { return r.Read32(eSTATUS)&2 != 0 })
	d := b.mem.Bytes()[txRing:]
	binary.LittleEndian.PutUint64(d, b.base+txFrame)
	binary.LittleEndian.PutUint32(d[8:], uint32(n)|sumOffset<<16|command<<24)
	binary.LittleEndian.PutUint32(d[12:], sumStart<<8)
	r.Write32(eTDBAL, uint32(b.base+txRing))
	r.Write32(eTDBAL+4, uint32((b.base+txRing)>>32))
	r.Write32(eTDBAL+atLength, 16*ringLength)
	r.Write32(eTDBAL+atHead, 0)
	r.Write32(eTDBAL+atTail, 0)
	r.Write32(eTCTL, tctl|1<<1)
	r.Write32(eTDBAL+atTail, 1)
	f, err := b.Peer.Next(b.context)
	if err != nil {
		t.Fatal(err)
	}
	return f.Bytes
}

// Commands of a legacy transmit descriptor.
const (
	txEOP, txIFCS, txIC, txRS = 1, 2, 4, 8
)

func legacyChecksum(t *testing.T, b *bench) string {
	b.raw(t)
	f := rig.Frame{To: rig.Peer, From: rig.MAC, Payload: 100, Partial: true}
	n := copy(b.mem.Bytes()[txFrame:], f.Build())
	if rig.Sums(b.transmit(t, n, txEOP|txIFCS|txIC|txRS, uint32(f.L4()+f.SumOffset()), uint32(f.L4()), 0)) {
		return "inserted"
	}
	return "not inserted"
}

func shortFrame(t *testing.T, b *bench) string {
	b.raw(t)
	return fmt.Sprintf("%d bytes", len(b.transmit(t, 20, txEOP|txIFCS|txRS, 0, 0, 1<<3)))
}

// messages sets up MSI-X with receive queue 0 on vector 0.
func (b *bench) messages(t *testing.T) (bus.Region, *bus.Event) {
	t.Helper()
	var events []*bus.Event
	for range 5 {
		e, err := bus.NewEvent()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		events = append(events, e)
	}
	if err := b.Bus.SetInterrupts(bus.MSIX, events); err != nil {
		t.Fatal(err)
	}
	r := b.region(t, bus.BAR0)
	r.Write32(eIVAR, 0|8|(4|8)<<16)
	return r, events[0]
}

const causeRxQueue, causeLink = 1 << 20, 1 << 2

func icrKeeps(t *testing.T, b *bench) string {
	r, _ := b.raw(t).messages(t)
	r.Write32(eIMS, 1<<24)
	r.Write32(eICS, causeLink)
	r.Read32(eICR)
	if r.Read32(eICR)&causeLink != 0 {
		return "kept"
	}
	return "cleared"
}

func eiacMasks(t *testing.T, b *bench) string {
	r, e := b.raw(t).messages(t)
	r.Write32(eEIAC, causeRxQueue)
	r.Write32(eIMS, causeRxQueue)
	r.Write32(eICS, causeRxQueue)
	if _, err := e.Wait(b.context); err != nil {
		t.Fatal(err)
	}
	if r.Read32(eIMS)&causeRxQueue != 0 {
		return "not masked"
	}
	return "masked"
}

// Registers and commands of a vmxnet3.
const (
	vDSAL, vDSAH, vCMD, vMACL, vMACH = 0x10, 0x18, 0x20, 0x28, 0x30

	vActivate = 0xCAFE0000
	vQuiesce  = 0xCAFE0001
	vReset    = 0xCAFE0002
)

func vmxRegister(offset uint32) func(*testing.T, *bench) string {
	return func(t *testing.T, b *bench) string {
		return fmt.Sprintf("%#x", b.raw(t).region(t, bus.BAR1).Read32(offset))
	}
}

// driven runs the driver on the device.
func (b *bench) driven(t *testing.T, opt rig.Options) *rig.Net {
	t.Helper()
	opt.Memory, opt.Deadline = rig.SharedMemory, patience
	driver := e1000.New()
	if b.model == "vmxnet3" {
		driver = vmxnet3.New()
	}
	return rig.On(t, driver, b.Station, opt)
}

func vmxSpeed(t *testing.T, b *bench) string {
	l, err := b.driven(t, rig.Options{}).Device.Link()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(l.Mbps)
}

func command(r bus.Region, c uint32) uint32 {
	r.Write32(vCMD, c)
	return r.Read32(vCMD)
}

func outcome(result uint32) string {
	if result == 0 {
		return "succeeds"
	}
	return "fails"
}

// vmxForgets masks an interrupt that nobody has acknowledged.
func vmxForgets(t *testing.T, b *bench) string {
	kind := bus.INTx
	n := b.driven(t, rig.Options{Kind: &kind, Config: oneQueue})
	n.Admin()
	for n.Device.Interrupt(0).Admin { // of the link
		n.Admin()
	}
	if err := b.Bus.UnmaskInterrupt(0); err != nil {
		t.Fatal(err)
	}
	n.Device.Unmask(0)
	n.Events[0].Take()
	n.Inject(rig.Frame{Payload: 60}.Build())
	if _, err := n.Events[0].Wait(n.Context); err != nil {
		t.Fatal(err)
	}
	n.Device.Mask(0)
	// PCI's status register shows the line, which a mask takes back or does not.
	until(100*time.Millisecond, func() bool { s, _ := b.Bus.ReadConfig(6, 2); return s&8 == 0 })
	n.Device.Unmask(0)
	if n.Device.Interrupt(0).None() {
		return "forgotten"
	}
	return "kept"
}

func vmxTwice(t *testing.T, b *bench) string {
	b.driven(t, rig.Options{})
	return outcome(command(b.region(t, bus.BAR1), vActivate))
}

func vmxAfterReset(t *testing.T, b *bench) string {
	b.driven(t, rig.Options{})
	r := b.region(t, bus.BAR1)
	command(r, vQuiesce)
	command(r, vReset)
	return outcome(command(r, vActivate))
}

func vmxMAC(t *testing.T, b *bench) string {
	n := b.driven(t, rig.Options{})
	r := b.region(t, bus.BAR1)
	r.Write32(vMACL, 0x09090902)
	r.Write32(vMACH, 0x0909)
	command(r, vQuiesce)
	if command(r, vActivate) != 0 {
		t.Fatal("does not activate")
	}
	defer n.Stop()
	switch r.Read32(vMACL) {
	case 0x09090902:
		return "kept"
	case binary.LittleEndian.Uint32(rig.MAC[:]):
		return "permanent one"
	}
	return fmt.Sprintf("%#x", r.Read32(vMACL))
}

func vmxOversize(t *testing.T, b *bench) string {
	n := b.driven(t, rig.Options{Config: func(c *framework.Config) { c.Features &^= framework.LRO }})
	n.Inject(rig.Frame{Payload: 1600}.Build(), rig.Frame{Payload: 60, Port: 9}.Build())
	var first []rig.Received
	n.Until("frames", func() bool {
		first = append(first, n.Poll(0)...)
		first = append(first, n.Poll(1)...)
		return len(first) > 0
	})
	if len(first[0].Bytes) > 1600 {
		return "received"
	}
	return "dropped"
}

func vmxComplete(t *testing.T, b *bench) string {
	n := b.driven(t, rig.Options{})
	n.Put(0, rig.Frame{To: rig.Peer, From: rig.MAC, Payload: 60}.Build(), 200, framework.Packet{})
	n.Queues.Tx[0].Bell()
	n.Arrives()
	if until(200*time.Millisecond, n.Queues.Tx[0].Pending) {
		return "always"
	}
	return "none"
}

func vmxChecksum(t *testing.T, b *bench) string {
	n := b.driven(t, rig.Options{})
	n.Inject(rig.Frame{Payload: 60}.Build())
	if n.Receive(1)[0].Flags&framework.ChecksumVerified != 0 {
		return "verified"
	}
	return "nothing known"
}

func vmxSpread(t *testing.T, b *bench) string {
	n := b.driven(t, rig.Options{})
	queues := map[int]bool{}
	for port := range uint16(32) {
		n.Inject(rig.Frame{Port: 1000 + port, Payload: 60}.Build())
		queues[n.Receive(1)[0].Queue] = true
	}
	if len(queues) == 1 {
		return "1 queue"
	}
	return fmt.Sprintf("%d queues", len(queues))
}

func vmxDry(t *testing.T, b *bench) string {
	n := b.driven(t, rig.Options{Config: oneQueue})
	go func() {
		for range 300 {
			if b.Peer.Send(b.context, sim.FrameOf(rig.Frame{Payload: 60}.Build())) != nil {
				return
			}
		}
	}()
	if until(time.Second, func() bool { return n.Counter("rx_out_of_buffer") > 0 }) {
		return "dropped"
	}
	return "pause the peer"
}

// tsoCut says what a TSO frame is cut into.
func tsoCut(t *testing.T, b *bench) string {
	n := b.driven(t, rig.Options{})
	f := rig.Frame{To: rig.Peer, From: rig.MAC, Payload: 4000, NoLength: true}
	n.Send(0, f.Build(), 2000, f.TSO(1448))
	const moreFragments = 1 << 5
	switch got := n.Arrives().Bytes; {
	case got[14+6]&moreFragments != 0:
		return "IP fragments"
	case rig.Sums(got):
		return "segments"
	}
	return "neither"
}

// fullSegments counts what comes of a TSO frame whose payload is two segments'.
func fullSegments(t *testing.T, b *bench) string {
	n := b.driven(t, rig.Options{})
	f := rig.Frame{To: rig.Peer, From: rig.MAC, Payload: 2 * 1448, NoLength: true}
	n.Send(0, f.Build(), 2000, f.TSO(1448))
	marker := rig.Frame{UDP: true, To: rig.Peer, From: rig.MAC, Payload: 30}
	n.Send(0, marker.Build(), 2000, framework.Packet{})
	full, empty := 0, 0
	for {
		switch got := n.Arrives().Bytes; {
		case len(got) == f.HeaderLen()+1448:
			full++
		case len(got) == f.HeaderLen() && got[14+9] == 6:
			empty++
		case empty == 0:
			return fmt.Sprintf("%d segments", full)
		default:
			return fmt.Sprintf("%d segments and an empty one", full)
		}
	}
}
