package gso_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"nicd/gso"
)

// extended is a TCP frame over IPv6 with extension headers in between, with the
// checksum of RFC 1071 by its definition.
func extended(extensions [][]byte, kinds []byte, seq uint32, flags byte, payload []byte) []byte {
	address := bytes.Repeat([]byte{0xfd, 7}, 16)
	tcp := append(make([]byte, 20), payload...)
	binary.BigEndian.PutUint32(tcp[4:], seq)
	tcp[12], tcp[13] = 5<<4, flags
	sum := uint64(6 + len(tcp))
	for _, b := range [][]byte{address, tcp} {
		for i, v := range b {
			sum += uint64(v) << (8 * (1 - i%2))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(tcp[16:], ^uint16(sum))
	kinds = append(kinds[:len(kinds):len(kinds)], 6)
	var middle []byte
	for i, e := range extensions {
		middle = append(append(middle, kinds[i+1]), e[1:]...)
	}
	ip := append([]byte{0x60, 0, 0, 0, 0, 0, kinds[0], 64}, address...)
	binary.BigEndian.PutUint16(ip[4:], uint16(len(middle)+len(tcp)))
	f := append(bytes.Repeat([]byte{2}, 12), 0x86, 0xdd)
	return append(append(append(f, ip...), middle...), tcp...)
}

// Extension headers that do not say where a packet goes are repeated in each segment.
func TestExtensionHeaders(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	options := func(words int) []byte {
		e := make([]byte, 8+8*words)
		e[1], e[2], e[3] = byte(words), 1, byte(len(e)-4) // PadN
		return e
	}
	for range 500 {
		var list [][]byte
		var kinds []byte
		for range 1 + r.IntN(3) {
			list, kinds = append(list, options(r.IntN(3))), append(kinds, []byte{0, 43, 60}[r.IntN(3)])
			if last := len(list) - 1; kinds[last] == 43 {
				list[last][2], list[last][3] = 4, 0 // none left
			}
		}
		payload := make([]byte, 1+r.IntN(5000))
		for i := range payload {
			payload[i] = byte(r.Uint32())
		}
		size := 1 + r.IntN(1400)
		whole := extended(list, kinds, 77, 0x18, payload)
		p, err := gso.Parse(whole)
		if err != nil || int(p.HeaderLen) != len(whole)-len(payload) {
			t.Fatalf("%v: %+v, %v", kinds, p, err)
		}
		p.SegmentSize = uint16(size)
		var s gso.Segmenter
		if err := s.Reset([][]byte{whole}, p); err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, int(p.HeaderLen)+size)
		for at := 0; at < len(payload); at += size {
			end, flags := at+size, byte(0x10)
			if end >= len(payload) {
				end, flags = len(payload), 0x18
			}
			n, ok := s.NextFrame(buffer)
			if want := extended(list, kinds, 77+uint32(at), flags, payload[at:end]); !ok || !bytes.Equal(buffer[:n], want) {
				t.Fatalf("%v, segment at %d:\n%x\n%x", kinds, at, buffer[:n], want)
			}
		}
		if _, ok := s.NextFrame(buffer); ok {
			t.Fatal("a segment too many")
		}
	}
}

// A fragment, and a packet that has not been everywhere it goes, is not cut.
func TestExtensionHeadersRefused(t *testing.T) {
	left := []byte{0, 0, 4, 1, 0, 0, 0, 0}
	for name, frame := range map[string][]byte{
		"fragment":      extended([][]byte{make([]byte, 8)}, []byte{44}, 1, 0x10, make([]byte, 100)),
		"segments left": extended([][]byte{left}, []byte{43}, 1, 0x10, make([]byte, 100)),
		"too many":      extended(slices8(9), make([]byte, 9), 1, 0x10, make([]byte, 100)),
		"cut off":       extended(slices8(1), []byte{60}, 1, 0x10, nil)[:14+40+7],
		"beyond":        extended([][]byte{{0, 255, 0, 0, 0, 0, 0, 0}}, []byte{60}, 1, 0x10, make([]byte, 100)),
	} {
		if p, err := gso.Parse(frame); err != gso.ErrHeader {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
}

func slices8(n int) (list [][]byte) {
	for range n {
		list = append(list, make([]byte, 8))
	}
	return list
}
