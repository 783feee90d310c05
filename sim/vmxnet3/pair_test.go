package vmxnet3

import (
	"bytes"
	"context"
	"encoding/binary"
	"sync"
	"testing"
	"time"

	"nicd/bus"
	"nicd/sim"
)

// newPair is two devices on a wire, addressed .1 and .2.
func newPair(t testing.TB, a, b setup) (*tdriver, *tdriver) {
	w := sim.NewWire(sim.WireOptions{})
	t.Cleanup(w.Close)
	b.opt.MAC = [6]byte{0x00, 0x50, 0x56, 0, 0, 2}
	return newDriver(t, w, a), newDriver(t, w, b)
}

// TestTwoDevicesSendToEachOther: both workers send all the time, receivers run
// out of buffers, registers are read, and nothing is lost, reordered or stuck.
func TestTwoDevicesSendToEachOther(t *testing.T) {
	for name, features := range map[string][2]uint32{
		"lro on both": {lroFeatures, lroFeatures}, "lro on one": {lroFeatures, bitRxCsum},
	} {
		t.Run(name, func(t *testing.T) {
			s := func(f uint32) setup {
				return setup{features: f, ring: 64, worker: true, kind: bus.MSIX, autoMask: true, heap: true}
			}
			a, b := newPair(t, s(features[0]), s(features[1]))
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			var wg sync.WaitGroup
			for _, d := range []*tdriver{a, b} {
				peer := a
				if d == a {
					peer = b
				}
				wg.Go(func() { streamOut(ctx, t, d, peer.m.opt.MAC) })
				wg.Go(func() { streamIn(ctx, t, d) })
			}
			wg.Go(func() {
				for ctx.Err() == nil && streamed(a)+streamed(b) < 2*streamBytes {
					a.command(cmdGetStats)
					b.command(cmdGetLink)
					time.Sleep(time.Millisecond) // pacing of a bystander, not synchronisation
				}
			})
			wg.Wait()
			if a.dev.Faults()+b.dev.Faults() != 0 {
				t.Error("faults")
			}
		})
	}
}

const streamBytes = 4 << 20

var streamState sync.Map // *tdriver -> received bytes

func streamed(d *tdriver) int {
	v, _ := streamState.Load(d)
	n, _ := v.(int)
	return n
}

// streamOut sends streamBytes in TSO frames of growing size.
func streamOut(ctx context.Context, t *testing.T, d *tdriver, dst [6]byte) {
	x := d.tx[0]
	f := tcpFrame(0)
	f.dst, f.tso, f.seq = dst, true, 0
	for n, i := 0, 0; n < streamBytes; i++ {
		size := min(1+i*977%15000, streamBytes-n)
		f.payload = streamPayload(n, size)
		f.seq = uint32(n)
		f.flags = 0x10
		b := f.bytes()
		for x.completed(); x.free < 2 || x.busy(); x.completed() {
			if !d.sleep(ctx, 0) {
				t.Error("transmit is stuck")
				return
			}
		}
		x.put(txReq{parts: split(b, 54), om: 3, hlen: 54, mss: 1400})
		x.bell()
		n += size
	}
}

// busy tells whether the memory for the next packet may still be in use.
func (x *ttx) busy() bool { return x.size-1-x.free >= 4 }

func streamPayload(at, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte((at + i) * 7 >> 3)
	}
	return b
}

// streamIn checks that the peer's stream arrives whole and in order.
func streamIn(ctx context.Context, t *testing.T, d *tdriver) {
	for n := 0; n < streamBytes; {
		p, ok := d.rx[0].poll()
		if !ok {
			if !d.sleep(ctx, 1) {
				t.Errorf("receive is stuck after %d bytes", n)
				return
			}
			continue
		}
		if bus.Word(d.mem.Bytes(), int(d.rxDesc(0)-testIOVA)).Load()&1 != 0 {
			d.pt.Write32(0x800, uint32(d.rx[0].next[0]))
			d.pt.Write32(0xa00, uint32(d.rx[0].next[1]))
		}
		end := 14 + int(binary.BigEndian.Uint16(p.bytes[16:]))
		seq := binary.BigEndian.Uint32(p.bytes[38:])
		if int(seq) != n || !bytes.Equal(p.bytes[54:end], streamPayload(n, end-54)) {
			t.Errorf("at %d: segment %d of %d bytes", n, seq, end-54)
			return
		}
		n += end - 54
		streamState.Store(d, n)
	}
}

// sleep unmasks a vector and waits until it fires. A cause that came in between
// fires at once.
func (d *tdriver) sleep(ctx context.Context, v int) bool {
	d.pt.Write32(8*uint32(v), 0)
	_, err := d.events[v].Wait(ctx)
	return err == nil
}

func TestBusMasteringOff(t *testing.T) {
	w, peer := newTestWire(t)
	d := newDriver(t, w, setup{})
	must(t, d.dev.WriteConfig(4, 2, 2))
	inject(t, peer, tcpFrame(1).frame())
	expectNone(t, d.rx[0])
	if d.dev.Faults() == 0 {
		t.Error("no fault reported")
	}
}
