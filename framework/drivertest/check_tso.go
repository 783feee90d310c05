package drivertest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"nicd/framework"
	"nicd/framework/drivertest/rig"
	"nicd/framework/engine"
)

var tsoChecks = []*check{
	{name: "tso.ipv4", features: framework.TSO4, run: func(t *c) { t.tso(rig.Frame{}, 0) },
		doc: "TCP over IPv4 of 1 byte to 64 KiB is cut into the segments that it should be."},
	{name: "tso.ipv4-timestamps", features: framework.TSO4, run: func(t *c) { t.tso(rig.Frame{TCPOptions: 12}, 0) },
		doc: "The same with 12 bytes of TCP options."},
	{name: "tso.ipv4-all-options", features: framework.TSO4, run: func(t *c) { t.tso(rig.Frame{TCPOptions: 40, IPOptions: 40}, 0) },
		doc: "The same with all the options that IPv4 and TCP can have."},
	{name: "tso.ipv4-tag-in-frame", features: framework.TSO4, run: func(t *c) { t.tso(rig.Frame{TCI: 0x2064}, 0) },
		doc: "The same with an 802.1Q tag in the frame."},
	{name: "tso.ipv4-tag-inserted", features: framework.TSO4 | framework.VLANInsert, run: func(t *c) { t.tso(rig.Frame{}, 0x3007) },
		doc: "The same with an 802.1Q tag that the device inserts."},
	{name: "tso.ipv6", features: framework.TSO6, run: func(t *c) { t.tso(rig.Frame{V6: true}, 0) },
		doc: "TCP over IPv6 of 1 byte to 64 KiB is cut into the segments that it should be."},
	{name: "tso.ipv6-timestamps", features: framework.TSO6, run: func(t *c) { t.tso(rig.Frame{V6: true, TCPOptions: 12}, 0) },
		doc: "The same with 12 bytes of TCP options."},
	{name: "tso.ipv6-tag-inserted", features: framework.TSO6 | framework.VLANInsert, run: func(t *c) { t.tso(rig.Frame{V6: true}, 0x0123) },
		doc: "The same with an 802.1Q tag that the device inserts."},
	{name: "tso.flags", features: framework.TSO4, run: tsoFlags,
		doc: "FIN and PSH stand on the last segment only, and every other flag of the packet on all, CWR on the first at least."},
	{name: "tso.small-mss", features: framework.TSO4, run: tsoSmallMSS,
		doc: "Segments of 64 bytes and of nearly the MTU are cut as well."},
	{name: "tso.scattered", features: framework.TSO4, run: tsoScattered,
		doc: "The headers of a packet to be cut may lie in several fragments, and the payload in many short ones."},
	{name: "tso.between", features: framework.TSO4, run: tsoBetween,
		doc: "Packets to be cut, to be summed and ordinary ones by turns keep their order and their sums."},
	{name: "tso.queues", features: framework.TSO4, run: tsoQueues,
		doc: "All transmit queues cut at the same time."},
}

// Offsets in a TCP header, and flags.
const (
	tcpSeqAt   = 4
	tcpFlagsAt = 13
	tcpFIN     = 0x01
	tcpPSH     = 0x08
	tcpACK     = 0x10
	tcpCWR     = 0x80
	longestIP  = 65535
)

// tsoSizes are payloads from one byte to the longest that fits one IP packet.
func tsoSizes(f rig.Frame, mss int) (sizes []int) {
	longest := longestIP - (f.HeaderLen() - 14)
	if f.TCI != 0 {
		longest += 4
	}
	if f.V6 {
		longest += 40
	}
	longest = min(longest, framework.MaxPacketLen-f.HeaderLen()-4) // a tag may be inserted
	for _, s := range []int{
		1, 2, 100, mss - 1, mss, mss + 1, 2*mss - 1, 2 * mss, 2*mss + 1, 4095, 4096, 4097, 8 * mss,
		10000, 16384 - f.HeaderLen(), 16384, 16385, 20 * mss, 32768, 40001, 65000, longest - 1, longest,
	} {
		sizes = append(sizes, min(s, longest))
	}
	return slices.Compact(sizes)
}

// tso sends packets of all sizes with headers like f's through the engine.
func (t *c) tso(f rig.Frame, tci uint16) {
	mss := min(1400, 1500-(f.HeaderLen()-14))
	s := t.stack(stackOptions{})
	for i, size := range tsoSizes(f, mss) {
		f.Payload, f.Seq, f.ID = size, uint32(100000*i), uint16(1000*i)
		s.sendTSO(0, f, mss, tci)
		t.segments(s.net, f, mss, tci)
	}
	s.finish()
	s.cutByDevice()
}

// cutByDevice fails if the device was not asked to cut: then nothing was tested.
func (s *stack) cutByDevice() {
	if n := s.txCounter(engine.TxTSOHardware); n == 0 {
		s.t.Errorf("the device was not asked to cut anything")
	}
}

// sendTSO sends f as one packet to be cut, in fragments of 2000 bytes.
func (s *stack) sendTSO(q int, f rig.Frame, mss int, tci uint16) {
	f.To, f.From, f.Partial = rig.Peer, rig.MAC, true
	meta := f.TSO(mss)
	if tci != 0 {
		meta.Flags |= framework.VLANTag
		meta.VLAN = tci
	}
	s.send(q, meta, slices.Collect(slices.Chunk(f.Build(), 2000))...)
}

// segments reads what f is cut into at the far end and fails unless it is right.
func (t *c) segments(n *rig.Net, f rig.Frame, mss int, tci uint16) {
	f.To, f.From = rig.Peer, rig.MAC
	if tci != 0 {
		f.TCI = tci // on the wire it is in the frame
	}
	whole := f.Build()
	want := whole[f.HeaderLen():]
	id, step := 0, 0
	for at, i := 0, 0; at < len(want); i++ {
		got := n.Arrives().Bytes
		size := min(mss, len(want)-at)
		if err := t.segment(f, got, at, size); err != nil {
			t.Fatalf("%d bytes of payload, segment %d: %v: %x", len(want), i, err, head(got))
		}
		if payload := got[f.HeaderLen():][:size]; !bytes.Equal(payload, want[at:at+size]) {
			t.Fatalf("%d bytes of payload, segment %d: another payload", len(want), i)
		}
		at += size
		if f.V6 {
			continue
		}
		now := int(binary.BigEndian.Uint16(got[f.L4()-f.IPOptions-20+4:]))
		if i == 1 {
			step = now - id
		}
		if i > 0 && (uint16(now-id) != uint16(step) || step != 0 && uint16(step) != 1) {
			t.Fatalf("segment %d: IP identification %d after %d", i, now, id)
		}
		id = now
	}
}

// segment checks the headers of one segment of f, whose payload begins at byte at
// and has size bytes.
func (t *c) segment(f rig.Frame, got []byte, at, size int) error {
	if least := f.HeaderLen() + size; len(got) < least || len(got) > max(least, shortest+4) { // padded before the tag came in
		return fmt.Errorf("it has %d bytes, not %d", len(got), least)
	}
	one := f
	one.Seq, one.Payload = f.Seq+uint32(at), size
	want := one.Build()
	if !bytes.Equal(got[:14], want[:14]) {
		return fmt.Errorf("another Ethernet header")
	}
	if f.TCI != 0 && !bytes.Equal(got[14:18], want[14:18]) {
		return fmt.Errorf("another tag")
	}
	if !rig.Sums(got) {
		return fmt.Errorf("wrong checksums")
	}
	if seq := binary.BigEndian.Uint32(got[f.L4()+tcpSeqAt:]); seq != one.Seq {
		return fmt.Errorf("sequence number %d, want %d", seq, one.Seq)
	}
	if f.TCPOptions > 0 && !bytes.Equal(got[f.L4()+20:f.HeaderLen()], want[f.L4()+20:f.HeaderLen()]) {
		return fmt.Errorf("other TCP options")
	}
	const end = 0xFF &^ (tcpFIN | tcpPSH | tcpCWR)
	flags := got[f.L4()+tcpFlagsAt]
	last, first := at+size == f.Payload, at == 0
	was := f.TCPFlags
	if was == 0 {
		was = tcpACK
	}
	switch {
	case flags&end != was&end:
		return fmt.Errorf("flags %#x of %#x", flags, was)
	case last && flags&(tcpFIN|tcpPSH) != was&(tcpFIN|tcpPSH):
		return fmt.Errorf("the last segment has flags %#x of %#x", flags, was)
	case !last && flags&(tcpFIN|tcpPSH) != 0:
		return fmt.Errorf("FIN or PSH before the last segment: flags %#x", flags)
	case first && flags&tcpCWR != was&tcpCWR:
		return fmt.Errorf("the first segment has flags %#x of %#x", flags, was)
	}
	return nil
}

func tsoFlags(t *c) {
	s := t.stack(stackOptions{})
	for i, flags := range []byte{tcpACK, tcpACK | tcpPSH, tcpACK | tcpFIN, tcpACK | tcpFIN | tcpPSH, tcpACK | 0x40, tcpACK | tcpCWR, tcpACK | 0x20 | tcpPSH} {
		f := rig.Frame{TCPFlags: flags, Payload: 5000, Seq: uint32(i), ID: uint16(100 * i)}
		s.sendTSO(0, f, 1400, 0)
		t.segments(s.net, f, 1400, 0)
	}
	s.finish()
	s.cutByDevice()
}

func tsoSmallMSS(t *c) {
	s := t.stack(stackOptions{})
	for i, mss := range []int{64, 88, 536, 1000, 1459, 1460} {
		f := rig.Frame{Payload: min(40*mss+7, 60000), Seq: uint32(i), ID: uint16(100 * i)}
		s.sendTSO(0, f, mss, 0)
		t.segments(s.net, f, mss, 0)
	}
	s.finish()
	s.cutByDevice()
}

func tsoScattered(t *c) {
	s := t.stack(stackOptions{})
	for i, cuts := range [][]int{{14}, {14, 34}, {14, 34, 54}, {1, 20, 40}, {54}, {60}, {53, 55}} {
		f := rig.Frame{To: rig.Peer, From: rig.MAC, Payload: 6000, Seq: uint32(i), ID: uint16(100 * i), Partial: true}
		whole, at := f.Build(), 0
		var pieces [][]byte
		for _, cut := range cuts {
			pieces = append(pieces, whole[at:cut])
			at = cut
		}
		for _, p := range slices.Collect(slices.Chunk(whole[at:], 777)) {
			pieces = append(pieces, p)
		}
		s.send(0, f.TSO(1400), pieces...)
		f.Partial = false
		t.segments(s.net, f, 1400, 0)
	}
	s.finish()
	s.cutByDevice()
}

func tsoBetween(t *c) {
	s := t.stack(stackOptions{})
	turns := t.turns(60)
	sending := t.inBackground(func() {
		for i := range turns {
			s.sendTSO(0, betweenFrame(i), 1400, 0)
			s.send(0, framework.Packet{}, out(i, 40))
			f := rig.Frame{To: rig.Peer, From: rig.MAC, UDP: i%2 == 0, Payload: 300, Seq: uint32(i), Partial: true}
			s.send(0, f.Offload(), f.Build())
		}
	})
	for i := range turns {
		t.segments(s.net, betweenFrame(i), 1400, 0)
		t.sent(s.net, out(i, 40))
		f := rig.Frame{To: rig.Peer, From: rig.MAC, UDP: i%2 == 0, Payload: 300, Seq: uint32(i)}
		t.sent(s.net, f.Build())
	}
	<-sending
	s.finish()
	s.cutByDevice()
}

func betweenFrame(i int) rig.Frame {
	return rig.Frame{Payload: 1401 + 317*i%20000, Seq: uint32(i), ID: uint16(100 * i)}
}

func tsoQueues(t *c) {
	s := t.stack(stackOptions{})
	queues := s.plan.TxQueues
	if queues < 2 {
		t.notApplicable("%s has one transmit queue", s.info.Model)
	}
	const packets = 40
	var sending []<-chan struct{}
	for q := range queues {
		sending = append(sending, t.inBackground(func() {
			for i := range packets {
				s.sendTSO(q, rig.Frame{Port: uint16(5000 + q), Payload: 14000, Seq: uint32(14000 * i)}, 1400, 0)
			}
		}))
	}
	next := map[uint16]uint32{}
	for range queues * packets * 10 {
		got := s.net.Arrives().Bytes
		port, seq := binary.BigEndian.Uint16(got[34:]), binary.BigEndian.Uint32(got[38:])
		if !rig.Sums(got) || seq != next[port] || len(got) != 54+1400 {
			t.Fatalf("port %d: %d bytes with sequence number %d, want %d; sums right: %v", port, len(got), seq, next[port], rig.Sums(got))
		}
		next[port] = seq + 1400
	}
	for _, done := range sending {
		<-done
	}
	s.finish()
	s.cutByDevice()
}
