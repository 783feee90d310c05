package gso_test

import (
	"fmt"

	"nicd/gso"
)

// superFrame returns the headers of a TCP frame over IPv4 and, apart from them, 2500 bytes of payload.
func superFrame() [][]byte {
	header := []byte{
		0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2, 0x08, 0x00,
		0x45, 0, 0, 0, 0, 7, 0x40, 0, 64, 6, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2,
		0x13, 0x89, 0, 80, 0, 0, 0, 0, 0, 0, 0, 1, 0x50, 0x18, 1, 0, 0, 0, 0, 0,
	}
	return [][]byte{header, make([]byte, 2000), make([]byte, 500)}
}

// Without copying: the headers of each segment go into memory of the caller, payload stays where it is.
func ExampleSegmenter_Next() {
	frame := superFrame()
	p, err := gso.Parse(frame[0])
	if err != nil {
		fmt.Println(err)
		return
	}
	p.SegmentSize = 1460

	var s gso.Segmenter
	if err := s.Reset(frame, p); err != nil {
		fmt.Println(err)
		return
	}
	header := make([]byte, p.HeaderLen)
	refs := make([]gso.Ref, 0, len(frame))
	for {
		var ok bool
		if refs, ok = s.Next(header, refs[:0]); !ok {
			break
		}
		fmt.Printf("identification %d, flags %#x, payload %v\n", header[19], header[47], refs)
	}
	// Output:
	// identification 7, flags 0x10, payload [{1 0 1460}]
	// identification 8, flags 0x18, payload [{1 1460 540} {2 0 500}]
}

// For a device that cannot compute checksums: the caller wrote the sum of the pseudo-header, as for the device.
func ExampleFillChecksum() {
	frame := superFrame()
	p, err := gso.Parse(frame[0])
	if err != nil {
		fmt.Println(err)
		return
	}
	length := 0
	for _, f := range frame {
		length += len(f)
	}
	if err := gso.PartialChecksum(frame[0], p, length); err != nil {
		fmt.Println(err)
		return
	}
	if err := gso.FillChecksum(frame, int(p.L4Offset), 16); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%x\n", frame[0][50:52])
	// Output:
	// 0d2b
}
