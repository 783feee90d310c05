package drivertest

import (
	"fmt"
	"sync/atomic"

	"nicd/framework"
	"nicd/framework/drivertest/rig"
	"nicd/sim"
)

var checksumChecks = []*check{
	{name: "checksum.good", features: framework.RxChecksum, run: checksumGood,
		doc: "Frames of TCP and UDP over IPv4 with good checksums are verified."},
	{name: "checksum.good-ipv6", features: framework.RxChecksum, needs: []Ability{VerifiesV6}, run: checksumGoodV6,
		doc: "Frames of TCP and UDP over IPv6 with good checksums are verified."},
	{name: "checksum.bad", features: framework.RxChecksum, run: checksumBad,
		doc: "Frames with a bad checksum arrive, as bad or unknown, never as verified."},
	{name: "checksum.unknown", features: framework.RxChecksum, run: checksumUnknown,
		doc: "Of frames that have no checksum to look at, or none that a device understands, nothing is said."},
	{name: "checksum.corrupted", features: framework.RxChecksum, needs: []Ability{WireFaults}, run: checksumCorrupted,
		doc: "Of frames with flipped bits none whose sums are wrong is verified, and none is lost."},
	{name: "checksum.off", features: framework.RxChecksum, run: checksumOff,
		doc: "With rx-csum off nothing is said of any checksum; turned on again it is."},
	{name: "checksum.fill", features: framework.TxChecksum, run: checksumFill,
		doc: "TCP and UDP checksums are filled in, whatever options and tags the headers have."},
	{name: "checksum.fill-odd", features: framework.TxChecksum, run: checksumFillOdd,
		doc: "Checksums are filled in over payloads of every length and fragments of odd ones."},
	{name: "checksum.leave", run: checksumLeave,
		doc: "A frame that asks for no checksum is sent byte for byte, its sums right or wrong."},
}

const verdicts = framework.ChecksumVerified | framework.ChecksumBad

// verdict receives a frame and fails unless it arrives whole with one of the
// verdicts that are right.
func (t *c) verdict(n *rig.Net, f rig.Frame, right ...framework.PacketFlags) {
	b := f.Build()
	n.Inject(b)
	got := n.Receive(1)[0]
	t.same(got, b)
	for _, r := range right {
		if got.Flags&verdicts == r {
			return
		}
	}
	t.Errorf("%s: the verdict is %s", describe(f), verdictName(got.Flags))
}

func verdictName(f framework.PacketFlags) string {
	switch f & verdicts {
	case 0:
		return "unknown"
	case framework.ChecksumVerified:
		return "good"
	case framework.ChecksumBad:
		return "bad"
	}
	return "good and bad"
}

func describe(f rig.Frame) string {
	l4, ip, sums := "TCP", "IPv4", "good"
	if f.UDP {
		l4 = "UDP"
	}
	if f.V6 {
		ip = "IPv6"
	}
	switch {
	case f.BadIP:
		sums = "a bad IP"
	case f.BadL4:
		sums = "a bad " + l4
	case f.NoSum:
		sums = "no"
	}
	return fmt.Sprintf("%s over %s with %s checksum", l4, ip, sums)
}

func checksumGood(t *c) {
	n := t.net(on{Options: rig.Options{Config: oneQueue}})
	for _, f := range []rig.Frame{{}, {UDP: true}, {TCPOptions: 12}, {IPOptions: 8}, {TCI: 5}} {
		for _, size := range []int{1, 7, 100, 1300} {
			f.Payload = size
			b := f.Build()
			n.Inject(b)
			if got := n.Receive(1)[0]; got.Flags&verdicts != framework.ChecksumVerified && (f.IPOptions == 0 && f.TCI == 0 || got.Flags&verdicts != 0) {
				t.Errorf("%s, %d bytes: the verdict is %s", describe(f), size, verdictName(got.Flags))
			}
		}
	}
}

func checksumGoodV6(t *c) {
	n := t.net(on{Options: rig.Options{Config: oneQueue}})
	for _, size := range []int{1, 7, 100, 1300} {
		t.verdict(n, rig.Frame{V6: true, Payload: size}, framework.ChecksumVerified)
		t.verdict(n, rig.Frame{V6: true, UDP: true, Payload: size}, framework.ChecksumVerified)
	}
}

func checksumBad(t *c) {
	n := t.net(on{Options: rig.Options{Config: oneQueue}})
	bad := 0
	for _, f := range []rig.Frame{
		{BadL4: true}, {UDP: true, BadL4: true}, {BadIP: true}, {UDP: true, BadIP: true}, {TCPOptions: 20, BadL4: true},
		{V6: true, BadL4: true}, {V6: true, UDP: true, BadL4: true},
	} {
		f.Payload = 100
		n.Inject(f.Build())
		got := n.Receive(1)[0]
		t.same(got, f.Build())
		if got.Flags&framework.ChecksumVerified != 0 {
			t.Errorf("%s: the verdict is %s", describe(f), verdictName(got.Flags))
		}
		if got.Flags&framework.ChecksumBad != 0 {
			bad++
		}
		t.verdict(n, rig.Frame{Payload: 100}, framework.ChecksumVerified) // it does not stick
	}
	t.Logf("%d of 7 bad frames are called bad", bad)
}

func checksumUnknown(t *c) {
	n := t.net(on{Options: rig.Options{Config: oneQueue}})
	t.verdict(n, rig.Frame{UDP: true, NoSum: true, Payload: 100}, 0, framework.ChecksumVerified)
	for name, change := range map[string]func([]byte){
		"ARP":              func(b []byte) { b[12], b[13] = 0x08, 0x06 },
		"experimental":     func(b []byte) { b[12], b[13] = 0x88, 0xB5 },
		"a first fragment": func(b []byte) { fragmentIP(b, 0x2000) },
		"a later fragment": func(b []byte) { fragmentIP(b, 0x00B9) },
		"GRE":              func(b []byte) { protocolIP(b, 47) },
	} {
		b := in(1, 100)
		change(b)
		n.Inject(b)
		got := n.Receive(1)[0]
		t.same(got, b)
		if got.Flags&framework.ChecksumBad != 0 || name == "ARP" && got.Flags&verdicts != 0 {
			t.Errorf("%s: the verdict is %s", name, verdictName(got.Flags))
		}
		if got.Flags&framework.ChecksumVerified != 0 && name != "GRE" {
			t.Errorf("%s: its layer-4 checksum is verified", name)
		}
	}
}

// fragmentIP makes an IPv4 frame a fragment.
func fragmentIP(b []byte, field uint16) {
	b[20], b[21] = byte(field>>8), byte(field)
	fixIP(b)
}

func protocolIP(b []byte, p byte) {
	b[23] = p
	fixIP(b)
}

// fixIP writes the checksum of an IPv4 header of 20 bytes.
func fixIP(b []byte) {
	b[24], b[25] = 0, 0
	var sum uint32
	for i := 14; i < 34; i += 2 {
		sum += uint32(b[i])<<8 | uint32(b[i+1])
	}
	for sum>>16 != 0 {
		sum = sum&0xFFFF + sum>>16
	}
	b[24], b[25] = byte(^sum>>8), byte(^sum)
}

func checksumCorrupted(t *c) {
	n := t.net(on{Options: rig.Options{Config: func(cfg *framework.Config) {
		oneQueue(cfg)
		cfg.Filters.Promiscuous = true
		cfg.Features &^= framework.LRO | framework.VLANStrip | framework.VLANInsert
	}}})
	const seed = 11
	t.Logf("seed %d", seed)
	n.SetFaults(sim.Faults{Seed: seed, Corrupt: 0.6})
	frames, arrived := t.turns(600), atomic.Int64{}
	sending := t.inBackground(func() {
		for i := range frames {
			t.keepTo(n, n.Config.RxDescriptors/2, i, func() int { return int(arrived.Load()) })
			t.inject(n, in(i, 100))
		}
	})
	n.Until("all frames", func() bool {
		for _, got := range n.Poll(0) {
			arrived.Add(1)
			if got.Flags&framework.ChecksumVerified != 0 && !rig.Sums(got.Bytes) {
				t.Errorf("verified, and its sums are wrong: %x", got.Bytes)
			}
		}
		return int(arrived.Load()) >= frames
	})
	<-sending
}

func checksumOff(t *c) {
	n := t.net(on{Options: rig.Options{Config: oneQueue}})
	for range 3 {
		n.Change(func(s *framework.Settings) { s.Features &^= framework.RxChecksum | framework.LRO })
		for _, f := range []rig.Frame{{}, {BadL4: true}, {UDP: true}, {V6: true}} {
			f.Payload = 100
			t.verdict(n, f, 0)
		}
		n.Change(func(s *framework.Settings) { s.Features |= framework.RxChecksum })
		t.verdict(n, rig.Frame{Payload: 100}, framework.ChecksumVerified)
	}
}

// fill sends a frame whose checksum is to be filled in.
func (t *c) fill(n *rig.Net, f rig.Frame, size int) {
	f.To, f.From, f.Partial = rig.Peer, rig.MAC, true
	n.Send(0, f.Build(), size, f.Offload())
	f.Partial = false
	got := n.Arrives()
	if want := f.Build(); string(got.Bytes) != string(want) {
		t.Errorf("%s, %d bytes in fragments of %d, is sent as %x, not %x", describe(f), len(want), size, head(got.Bytes), head(want))
	}
}

func checksumFill(t *c) {
	n := t.net(on{})
	for range 3 {
		for _, f := range []rig.Frame{
			{}, {UDP: true}, {}, {}, {V6: true}, {V6: true, UDP: true}, {TCPOptions: 12}, {TCPOptions: 40},
			{IPOptions: 8}, {UDP: true, IPOptions: 40}, {TCI: 7}, {TCI: 7, UDP: true}, {V6: true, TCI: 9},
		} {
			f.Payload = 201
			t.fill(n, f, 2000)
		}
	}
}

func checksumFillOdd(t *c) {
	n := t.net(on{})
	for size := 18; size < 82; size++ { // from the shortest frame on
		t.fill(n, rig.Frame{UDP: size%2 == 0, Payload: size}, 2000)
	}
	if !framework.ContiguousHeadersQuirk.Get(n.Quirks()) {
		for _, piece := range []int{63, 65, 77, 101} {
			t.fill(n, rig.Frame{Payload: 500}, piece)
			t.fill(n, rig.Frame{UDP: true, Payload: 501}, piece)
		}
	}
}

func checksumLeave(t *c) {
	n := t.net(on{})
	for _, f := range []rig.Frame{{}, {BadL4: true}, {BadIP: true}, {UDP: true, NoSum: true}, {V6: true, BadL4: true}} {
		f.To, f.From, f.Payload = rig.Peer, rig.MAC, 100
		n.Send(0, f.Build(), 60, framework.Packet{})
		t.sent(n, f.Build())
		if n.Info.Features.Has(framework.TxChecksum) {
			t.fill(n, rig.Frame{Payload: 90}, 2000) // and that does not stick either
		}
	}
}
