package lro_test

import (
	"fmt"

	"nicd/gso"
	"nicd/lro"
)

// frame returns segment number n of a connection: 14 bytes of Ethernet, 20 of IPv4, 20 of TCP and 1000 of payload.
func frame(n int) []byte {
	f := make([]byte, 14+20+20+1000)
	copy(f, []byte{
		0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2, 0x08, 0x00,
		0x45, 0, 1040 >> 8, 1040 & 0xff, 0, byte(n), 0x40, 0, 64, 6, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2,
		0x13, 0x89, 0, 80, 0, 0, byte(n * 1000 >> 8), byte(n * 1000), 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0,
	})
	p, err := gso.Parse(f)
	if err != nil {
		panic(err)
	}
	// Segmenting a frame that fits writes its checksums.
	p.SegmentSize = 1000
	var s gso.Segmenter
	if err := s.Reset([][]byte{append([]byte(nil), f...)}, p); err != nil {
		panic(err)
	}
	f[18], f[19] = 0, byte(n)
	s.NextFrame(f)
	return f
}

// One engine for each receive queue; one call for each poll of the ring.
func ExampleEngine_Batch() {
	engine := lro.New(lro.Options{})
	in := make([]lro.Packet, 0, 64)     // reused for every batch
	out := make([]lro.Aggregate, 0, 64) // reused for every batch
	for n := range 4 {
		f := frame(n)
		in = append(in, lro.Packet{Data: f, Len: uint32(len(f))})
	}
	in[3].Flags |= lro.HardwareCoalesced // the device says so: it passes alone

	out = engine.Batch(in, out[:0])
	for i := range out {
		a := &out[i]
		fmt.Printf("%d bytes, %d segments of %d, merged %v, bypassed %v:", a.Len, a.Segments, a.SegmentSize,
			a.Flags&lro.Merged != 0, a.Flags&lro.Bypassed != 0)
		for m := a.Head; m >= 0; m = in[m].Next {
			fmt.Printf(" %d", m)
		}
		fmt.Println()
	}
	fmt.Println("ended by", lro.ReasonHardware, engine.Stats().Ended[lro.ReasonHardware])
	// Output:
	// 3054 bytes, 3 segments of 1000, merged true, bypassed false: 0 1 2
	// 1054 bytes, 1 segments of 0, merged false, bypassed true: 3
	// ended by hardware 1
}

// An aggregate that has to be sent on is segmented with what it says about itself.
func ExampleAppendFragments() {
	in := make([]lro.Packet, 3)
	for n := range in {
		f := frame(n)
		in[n] = lro.Packet{Data: f, Len: uint32(len(f))}
	}
	out := lro.New(lro.Options{}).Batch(in, nil)
	a := &out[0]

	var s gso.Segmenter
	err := s.Reset(lro.AppendFragments(nil, in, a), gso.Params{
		L3Offset: a.L3Offset, L4Offset: a.L4Offset, HeaderLen: a.HeaderLen, SegmentSize: a.SegmentSize,
		FixedID: a.IDMode == lro.IDFixed, CopyCWR: a.Flags&lro.CWRCopied != 0,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	buffer := make([]byte, 1514)
	for n := 0; ; n++ {
		length, ok := s.NextFrame(buffer)
		if !ok {
			break
		}
		fmt.Println(length, string(buffer[:length]) == string(frame(n)))
	}
	// Output:
	// 1054 true
	// 1054 true
	// 1054 true
}

// Across batches, with the caller's clock: here one tick for each call, and nothing is held for more than two.
func ExampleHolder() {
	holder := lro.NewHolder(lro.Options{}, lro.HoldOptions{MaxAge: 2})
	for now := range int64(5) {
		var in []lro.Packet
		if now < 2 {
			f := frame(int(now))
			in = []lro.Packet{{Data: f, Len: uint32(len(f)), Handle: uint64(100 + now)}}
		}
		out := holder.Add(in, now, nil)
		fmt.Printf("at %d: %d held, %d released\n", now, holder.Held(), len(out))
		for i := range out {
			for m := out[i].Head; m >= 0; m = holder.Packets()[m].Next {
				fmt.Println("  packet", holder.Packets()[m].Handle)
			}
		}
	}
	// Output:
	// at 0: 1 held, 0 released
	// at 1: 2 held, 0 released
	// at 2: 0 held, 1 released
	//   packet 100
	//   packet 101
	// at 3: 0 held, 0 released
	// at 4: 0 held, 0 released
}
