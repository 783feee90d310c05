package pcap

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
)

// ng is a strict reader of what a Writer writes, after the text of
// draft-ietf-opsawg-pcapng and nothing else: little-endian, one section.
type ng struct {
	faces   []ngFace
	packets []ngPacket
}

type ngFace struct {
	link            uint16
	snap            uint32
	name, about, os string
	filter          string
	resolution      int // of time, as a power of ten; 6 if nothing is said
}

type ngPacket struct {
	face       uint32
	time       uint64
	length     uint32
	data       []byte
	flags      uint32
	queue      uint32
	has        map[uint16]bool
	commentary string
}

// Block types and options of sections 4.1, 4.2, 4.3 and 3.5.
const (
	ngSection, ngInterface, ngEnhanced = 0x0a0d0d0a, 1, 6

	ngComment                                               = 1
	ngName, ngDescription, ngResolution, ngFilter, ngFaceOS = 2, 3, 9, 11, 12
	ngFlags, ngQueue                                        = 2, 6
)

func readNG(file []byte) (*ng, error) {
	f, at := &ng{}, 0
	for n := 0; at < len(file); n++ {
		if len(file)-at < 12 {
			return nil, fmt.Errorf("%d bytes are left at %d", len(file)-at, at)
		}
		kind, length := binary.LittleEndian.Uint32(file[at:]), int(binary.LittleEndian.Uint32(file[at+4:]))
		if length%4 != 0 || length < 12 || length > len(file)-at || int(binary.LittleEndian.Uint32(file[at+length-4:])) != length {
			return nil, fmt.Errorf("block %d at %d: type %#x, length %d", n, at, kind, length)
		}
		if (kind == ngSection) != (n == 0) {
			return nil, fmt.Errorf("block %d: type %#x", n, kind)
		}
		if err := f.block(kind, file[at+8:at+length-4]); err != nil {
			return nil, fmt.Errorf("block %d: %w", n, err)
		}
		at += length
	}
	return f, nil
}

func (f *ng) block(kind uint32, body []byte) error {
	switch kind {
	case ngSection:
		if len(body) < 16 || binary.LittleEndian.Uint32(body) != 0x1a2b3c4d || binary.LittleEndian.Uint32(body[4:]) != 1 {
			return fmt.Errorf("section %x", body)
		}
		_, err := ngOptions(body[16:])
		return err
	case ngInterface:
		return f.face(body)
	case ngEnhanced:
		return f.packet(body)
	}
	return fmt.Errorf("type %#x", kind)
}

func (f *ng) face(body []byte) error {
	if len(body) < 8 {
		return fmt.Errorf("interface %x", body)
	}
	o, err := ngOptions(body[8:])
	if err != nil {
		return err
	}
	face := ngFace{
		link: binary.LittleEndian.Uint16(body), snap: binary.LittleEndian.Uint32(body[4:]),
		name: string(o[ngName]), about: string(o[ngDescription]), os: string(o[ngFaceOS]), resolution: 6,
	}
	if r := o[ngResolution]; len(r) == 1 && r[0]&0x80 == 0 {
		face.resolution = int(r[0])
	}
	if v, ok := o[ngFilter]; ok {
		if len(v) == 0 || v[0] != 0 { // 0: a string for libpcap
			return fmt.Errorf("filter %x", v)
		}
		face.filter = string(v[1:])
	}
	f.faces = append(f.faces, face)
	return nil
}

func (f *ng) packet(body []byte) error {
	if len(body) < 20 {
		return fmt.Errorf("packet %x", body)
	}
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(body[4*i:]) }
	p := ngPacket{face: word(0), time: uint64(word(1))<<32 | uint64(word(2)), length: word(4), has: map[uint16]bool{}}
	captured := int(word(3))
	if int(p.face) >= len(f.faces) || captured > len(body)-20 || uint32(captured) > p.length {
		return fmt.Errorf("packet of %d bytes, %d captured, interface %d, in %d", p.length, captured, p.face, len(body))
	}
	if snap := f.faces[p.face].snap; snap != 0 && uint32(captured) > snap {
		return fmt.Errorf("%d bytes were captured, of at most %d", captured, snap)
	}
	p.data = body[20 : 20+captured]
	padded := (captured + 3) &^ 3
	if !bytes.Equal(body[20+captured:20+padded], make([]byte, padded-captured)) {
		return fmt.Errorf("padding %x", body[20+captured:20+padded])
	}
	o, err := ngOptions(body[20+padded:])
	if err != nil {
		return err
	}
	for code := range o {
		p.has[code] = true
	}
	if len(o[ngFlags]) != 4 || len(o[ngQueue]) != 4 {
		return fmt.Errorf("flags %x, queue %x", o[ngFlags], o[ngQueue])
	}
	p.flags, p.queue, p.commentary = binary.LittleEndian.Uint32(o[ngFlags]), binary.LittleEndian.Uint32(o[ngQueue]), string(o[ngComment])
	f.packets = append(f.packets, p)
	return nil
}

// ngOptions reads options, none of which stands there twice.
func ngOptions(b []byte) (map[uint16][]byte, error) {
	o := map[uint16][]byte{}
	for len(b) > 0 {
		if len(b) < 4 {
			return nil, fmt.Errorf("option %x", b)
		}
		code, length := binary.LittleEndian.Uint16(b), int(binary.LittleEndian.Uint16(b[2:]))
		b = b[4:]
		if code == 0 {
			if length != 0 || len(b) != 0 {
				return nil, fmt.Errorf("end of options of length %d, %d bytes behind", length, len(b))
			}
			return o, nil
		}
		padded := (length + 3) &^ 3
		if _, twice := o[code]; twice || padded > len(b) || !bytes.Equal(b[length:padded], make([]byte, padded-length)) {
			return nil, fmt.Errorf("option %d of length %d, twice %v: %x", code, length, twice, b)
		}
		o[code], b = b[:length], b[padded:]
	}
	return o, nil
}

// What is written is pcapng by the letter, whatever the lengths of names, filters and
// packets.
func TestWriterByTheLetter(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 100 {
		name, filter := "eth123456789"[:1+r.IntN(12)], "not tcp and not udp"[:r.IntN(19)]
		snap := r.IntN(2) * (1 + r.IntN(200))
		points := []Point{TxPort, RxWire, RxDelivered, TxWire}[:1+r.IntN(4)]
		var file bytes.Buffer
		w, err := NewWriter(&file, name, filter, snap, points)
		if err != nil {
			t.Fatal(err)
		}
		var want []Record
		for range r.IntN(50) {
			n := 1 + r.IntN(300)
			rec := Record{
				Time: 1764500000e9 + r.Int64N(1e12), Point: points[r.IntN(len(points))], Queue: r.IntN(64), Len: n,
				Data: make([]byte, n), Comment: "to be cut into 44"[:r.IntN(18)],
			}
			if snap > 0 {
				rec.Data = rec.Data[:min(n, snap)]
			}
			for i := range rec.Data {
				rec.Data[i] = byte(r.Uint32())
			}
			want = append(want, rec)
			if err := w.Write(&rec); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		f, err := readNG(file.Bytes())
		if err != nil {
			t.Fatalf("%v\n%x", err, file.Bytes())
		}
		if len(f.faces) != len(points) || len(f.packets) != len(want) {
			t.Fatalf("%d interfaces of %d, %d packets of %d", len(f.faces), len(points), len(f.packets), len(want))
		}
		for i, face := range f.faces {
			if face != (ngFace{1, uint32(snap), name, points[i].String(), "linux", filter, 9}) {
				t.Fatalf("%+v", face)
			}
		}
		for i, p := range f.packets {
			rec := want[i]
			direction := uint32(2)
			if rec.Point.Incoming() {
				direction = 1
			}
			if f.faces[p.face].about != rec.Point.String() || p.time != uint64(rec.Time) || int(p.length) != rec.Len || !bytes.Equal(p.data, rec.Data) ||
				p.flags&3 != direction || int(p.queue) != rec.Queue || p.commentary != rec.Comment || p.has[ngComment] != (rec.Comment != "") {
				t.Fatalf("%+v was %+v", p, rec)
			}
		}
	}
}
