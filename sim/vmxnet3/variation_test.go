package vmxnet3

import (
	"encoding"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"nicd/sim"
)

// TestLinkInGbps: V19. A speed that is no whole number of Gbit/s is in Mbit/s.
func TestLinkInGbps(t *testing.T) {
	w, _ := newTestWire(t)
	for mbps, want := range map[int]uint32{10_000: 10, 40_000: 40, 2_500: 2_500} {
		d := newDriver(t, w, setup{opt: Options{SpeedMbps: mbps, Variations: Variations{LinkInGbps: true}}})
		if got := d.command(cmdGetLink); got != 1|want<<16 {
			t.Errorf("%d Mbit/s: %#x, want %d", mbps, got, want)
		}
	}
}

// TestDisabledOffloads: V20. What the device says not to do it does not.
func TestDisabledOffloads(t *testing.T) {
	f := tcpFrame(2000)
	for disabled := range uint32(4) {
		w, peer := newTestWire(t)
		d := newDriver(t, w, setup{features: lroFeatures, opt: Options{Variations: Variations{DisabledOffloads: disabled}}})
		if got := d.command(cmdGetDisabled); got != disabled {
			t.Errorf("%d disabled, %d told", disabled, got)
		}
		inject(t, peer, f.tsoFrame(1000))
		p, _ := d.rx[0].poll()
		if merged := len(p.bytes) > 1500; merged != (disabled&disabledLRO == 0) {
			t.Errorf("%d disabled: merged %v", disabled, merged)
		}
		tso := f
		tso.partial, tso.tso = true, true
		d.tx[0].send(txReq{parts: [][]byte{tso.bytes()}, om: 3, hlen: 54, mss: 1000})
		d.command(cmdGetQueueStatus)
		want := uint32(0)
		if disabled&disabledTSO != 0 {
			want = errDescUnsupported
		}
		if got := d.get32(d.txDesc(0) + 84); got != want {
			t.Errorf("%d disabled: a TSO packet stops the queue with %#x, want %#x", disabled, got, want)
		}
	}
}

// TestOutOfOrder: V22. Packets come in order, their descriptors don't, and each
// comes once.
func TestOutOfOrder(t *testing.T) {
	for _, every := range []int{1, 2, 3} {
		w, peer := newTestWire(t)
		v := Variations{OutOfOrderEvery: every}
		d := newDriver(t, w, setup{ring: 64, leave: 1, reorders: true, features: bitRxCsum, opt: Options{Variations: v}})
		var indices []int
		const packets = 50
		for i := range packets {
			inject(t, peer, tcpFrame(100+i).frame())
			indices = append(indices, expect(t, d.rx[0], tcpFrame(100+i).bytes()).indices...)
		}
		late := 0
		for i := 1; i < packets; i++ {
			if indices[i] < indices[i-1] {
				late++
			}
		}
		// With every packet of which it is the turn and that has none set aside.
		if want := map[int]int{1: 25, 2: 24, 3: 16}[every]; late != want {
			t.Errorf("every %d: %d of %d descriptors late, want %d: %v", every, late, packets, want, indices)
		}
		slices.Sort(indices)
		if len(slices.Compact(indices)) != packets {
			t.Errorf("every %d: descriptors used twice: %v", every, indices)
		}
	}
}

// TestOutOfOrderAtTheEnd: the last descriptor there is is not set aside.
func TestOutOfOrderAtTheEnd(t *testing.T) {
	w, peer := newTestWire(t)
	v := Variations{OutOfOrderEvery: 1}
	d := newDriver(t, w, setup{ring: 32, leave: 28, reorders: true, opt: Options{Variations: v}}) // 3 descriptors
	for i := range 3 {
		inject(t, peer, tcpFrame(100+i).frame())
		expect(t, d.rx[0], tcpFrame(100+i).bytes())
	}
}

// vxlan is inner within a VXLAN packet whose UDP checksum is wrong, or none.
func vxlan(inner tframe, bad bool) tframe {
	f := tcpFrame(0)
	f.proto, f.dport, f.badL4 = 17, vxlanPort, bad
	f.payload = append(make([]byte, vxlanHeaderLen), inner.bytes()...)
	return f
}

// TestInnerFlags: V24. The flags are about inner headers, and which bit says so is
// the variation.
func TestInnerFlags(t *testing.T) {
	good, bad := tcpFrame(300), tcpFrame(300)
	bad.badL4 = true
	plain := tcpFrame(400)
	plain.proto = 17
	for _, c := range []struct {
		style    InnerFlags
		revision int
		f        tframe
		bits, w3 uint32
	}{
		{InnerFlagsNever, 4, vxlan(good, false), 0, 0xab},
		{InnerFlagsBit13, 3, vxlan(good, false), 0, 0xab},
		{InnerFlagsBit13, 4, vxlan(good, false), 2, 0xad},
		{InnerFlagsBit12, 4, vxlan(good, false), 1, 0xad},
		{InnerFlagsBit13, 4, vxlan(good, true), 2, 0xad},
		{InnerFlagsBit13, 4, vxlan(bad, false), 2, 0xac},
		{InnerFlagsBit13, 4, plain, 0, 0xab},
	} {
		w, peer := newTestWire(t)
		d := newDriver(t, w, setup{features: lroFeatures, opt: Options{Revision: c.revision, Variations: Variations{InnerFlags: c.style, LRO: LROSingle}}})
		inject(t, peer, c.f.frame())
		p := expect(t, d.rx[0], c.f.bytes())
		e := p.eop()
		if bits, w3 := e[0]>>12&3, e[3]>>16&0xff; bits != c.bits || w3 != c.w3 || e[3]>>24&0x7f != typeRxComp {
			t.Errorf("style %d, revision %d: ext1 %b, flags %#x, want %b, %#x", c.style, c.revision, bits, w3, c.bits, c.w3)
		}
	}
}

// TestInnerFlagsTruncated: a tunnel's packet may end anywhere.
func TestInnerFlagsTruncated(t *testing.T) {
	w, peer := newTestWire(t)
	d := newDriver(t, w, setup{features: lroFeatures, opt: Options{Variations: Variations{InnerFlags: InnerFlagsBit13}}})
	whole := vxlan(tcpFrame(200), false).bytes()
	for n := 60; n < len(whole); n++ {
		b := slices.Clone(whole[:n])
		binary.BigEndian.PutUint16(b[16:], uint16(n-14))
		inject(t, peer, sim.FrameOf(b))
		expect(t, d.rx[0], b)
	}
}

// TestWords: each value of a choice has a word, and no other text is taken.
func TestWords(t *testing.T) {
	var (
		style LROStyle
		bells RxDoorbells
		inner InnerFlags
	)
	for word, c := range map[string]struct {
		v    encoding.TextUnmarshaler
		want any
	}{
		"by-revision": {&style, LROByRevision}, "length-only": {&style, LROLengthOnly}, "no-mss": {&style, LRONoMSS},
		"single": {&style, LROSingle}, "no-count": {&style, LRONoCount},
		"starved": {&bells, RxDoorbellsStarved}, "always": {&bells, RxDoorbellsAlways}, "never": {&bells, RxDoorbellsNever},
		"bit-13": {&inner, InnerFlagsBit13}, "bit-12": {&inner, InnerFlagsBit12},
	} {
		if err := c.v.UnmarshalText([]byte(word)); err != nil {
			t.Errorf("%s: %v", word, err)
		}
		got := map[string]any{"*vmxnet3.LROStyle": style, "*vmxnet3.RxDoorbells": bells, "*vmxnet3.InnerFlags": inner}[fmt.Sprintf("%T", c.v)]
		if got != c.want {
			t.Errorf("%s is %v, want %v", word, got, c.want)
		}
	}
	if err := style.UnmarshalText([]byte("3")); err == nil {
		t.Error("a number is no word")
	}
}
