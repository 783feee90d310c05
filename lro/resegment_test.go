package lro

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// resegment is written from the RFCs and shares nothing with package gso, so that an error in one of them cannot hide
// the same error in the other. It returns the frames that the aggregate stands for.
//
// RFC 9293 section 3.1: sequence number of the first byte; PSH and FIN belong to the end of the data. RFC 791 section
// 3.1: total length, identification, header checksum. RFC 8200 section 3: payload length. RFC 3168 section 6.1.2: CWR.
func resegment(in []Packet, a *Aggregate) [][]byte {
	head := in[a.Head].Data
	if a.Flags&Merged == 0 {
		return [][]byte{head}
	}
	var stream []byte
	for i := a.Head; i >= 0; i = in[i].Next {
		stream = append(stream, in[i].Data[in[i].PayloadOffset:][:in[i].PayloadLen]...)
	}
	var frames [][]byte
	for offset := 0; offset < len(stream); offset += int(a.SegmentSize) {
		end := min(offset+int(a.SegmentSize), len(stream))
		f := append(bytes.Clone(head[:a.HeaderLen]), stream[offset:end]...)
		ip, tcp := f[a.L3Offset:], f[a.L4Offset:]
		if ip[0]>>4 == 4 {
			binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
			if a.IDMode == IDIncrement {
				binary.BigEndian.PutUint16(ip[4:], binary.BigEndian.Uint16(ip[4:])+uint16(len(frames)))
			}
		} else {
			binary.BigEndian.PutUint16(ip[4:], uint16(len(tcp)))
		}
		binary.BigEndian.PutUint32(tcp[4:], binary.BigEndian.Uint32(tcp[4:])+uint32(offset))
		if end < len(stream) {
			tcp[13] &= 0xff - 1 - 8
		}
		if offset > 0 && a.Flags&CWRCopied == 0 {
			tcp[13] &= 0xff - 0x80
		}
		fix(f, int(a.L3Offset), int(a.L4Offset), 6)
		frames = append(frames, f)
	}
	return frames
}

// snapshot returns copies of the frames.
func snapshot(in []Packet) [][]byte {
	frames := make([][]byte, len(in))
	for i := range in {
		frames[i] = bytes.Clone(in[i].Data)
	}
	return frames
}

// checkBatch fails the test unless the outputs of one batch keep everything that an output promises, whatever the input
// was: properties P1 (round trip), P2 (order), P3 (conservation), P4 (payload), P5 (hardware) and P6 (headers). frames
// are the input as it was before.
func checkBatch(t failer, frames [][]byte, in []Packet, out []Aggregate) {
	t.Helper()
	seen := make([]bool, len(in))
	last := map[flowKey]int{}
	head := int32(-1)
	for i := range out {
		a := &out[i]
		if a.Head <= head {
			t.Fatalf("P2: the output of packet %d comes after that of %d", a.Head, head)
		}
		head = a.Head
		m := members(t, in, a)
		for _, j := range m {
			if seen[j] {
				t.Fatalf("P3: packet %d is in two outputs", j)
			}
			seen[j] = true
			key := modelParse(&in[j], frames[j]).key
			if before, ok := last[key]; ok && before > j {
				t.Fatalf("P2: packet %d of its flow comes after packet %d", j, before)
			}
			last[key] = j
			if len(m) > 1 && marked(&in[j]) {
				t.Fatalf("P5: packet %d is marked and was merged", j)
			}
		}
		checkHeaders(t, in, a, len(m))
		got := resegment(in, a)
		if len(got) != len(m) {
			t.Fatalf("P1: %d frames became %d", len(m), len(got))
		}
		for k, j := range m {
			if !bytes.Equal(got[k], frames[j]) {
				t.Fatalf("P1: frame %d does not come back: %s", j, difference(got[k], frames[j]))
			}
		}
	}
	for i, ok := range seen {
		if !ok {
			t.Fatalf("P3: packet %d is in no output", i)
		}
	}
}

// difference describes the first difference of two frames.
func difference(got, want []byte) string {
	at := 0
	for at < len(got) && at < len(want) && got[at] == want[at] {
		at++
	}
	return fmt.Sprintf("%d and %d bytes, from byte %d on\n%x\n%x", len(got), len(want), at, got[at:min(at+64, len(got))],
		want[at:min(at+64, len(want))])
}

// checkHeaders checks property P6 and the counts of P4.
func checkHeaders(t failer, in []Packet, a *Aggregate, members int) {
	t.Helper()
	p := &in[a.Head]
	if a.Flags&Merged == 0 {
		if members != 1 || a.Len != p.Len {
			t.Fatalf("P6: passed alone: %d members, %+v", members, a)
		}
		return
	}
	d := p.Data
	payload := 0
	for i := a.Head; i >= 0; i = in[i].Next {
		payload += int(in[i].PayloadLen)
	}
	size := int(a.SegmentSize)
	if int(a.Segments) != members || members < 2 || size < 1 || int(a.Len) != int(a.HeaderLen)+payload ||
		(members-1)*size >= payload || payload > members*size || a.Checksum != ChecksumPartial {
		t.Fatalf("P6: %d members, %d bytes of payload, %+v", members, payload, a)
	}
	ip, length := d[a.L3Offset:], int(a.Len)-int(a.L4Offset)
	var pseudo uint32
	if ip[0]>>4 == 4 {
		if int(binary.BigEndian.Uint16(ip[2:])) != length+20 || onesSum(0, ip[:20]) != 0xffff {
			t.Fatalf("P6: IPv4 header %x of %d bytes", ip[:20], length+20)
		}
		pseudo = onesSum(6, ip[12:20])
	} else {
		if int(binary.BigEndian.Uint16(ip[4:])) != length {
			t.Fatalf("P6: IPv6 header %x of %d bytes", ip[:40], length)
		}
		pseudo = onesSum(6, ip[8:40])
	}
	pseudo = onesSum(pseudo, []byte{byte(length >> 8), byte(length)})
	if uint32(binary.BigEndian.Uint16(d[a.L4Offset+16:])) != pseudo {
		t.Fatalf("P6: checksum field %x, pseudo-header %x", d[a.L4Offset+16:][:2], pseudo)
	}
}

func marked(p *Packet) bool { return p.Flags&HardwareCoalesced != 0 || p.Segments > 1 }

// runBatch runs one batch on a new engine, checks everything that can be checked without knowing what is expected, and
// returns the groups and the outputs.
func runBatch(t failer, o Options, in []Packet) (string, []Aggregate, *Engine) {
	t.Helper()
	frames := snapshot(in)
	e := New(o)
	out := e.Batch(in, nil)
	checkBatch(t, frames, in, out)
	checkStats(t, e)
	if e.open != 0 || len(e.table.used) != 0 {
		t.Fatalf("P13: %d aggregates are held", e.open)
	}
	return groups(t, in, out), out, e
}
