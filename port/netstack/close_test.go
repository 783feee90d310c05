package netstack

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"nicd/framework"
)

// goneInterface is an interface that must not be touched once it is gone.
type goneInterface struct {
	framework.Interface
	memory framework.Buffers
	gone   atomic.Bool
	late   atomic.Int64
	out    atomic.Int64 // buffers taken and not sent or given back
}

func (i *goneInterface) touch() {
	if i.gone.Load() {
		i.late.Add(1)
	}
}

func (i *goneInterface) Name() string { return "test" }
func (i *goneInterface) Queues() int  { i.touch(); return 2 }
func (i *goneInterface) Settings() framework.Settings {
	i.touch()
	return framework.Settings{MTU: 1500, MAC: framework.MAC{2, 0, 0, 0, 0, 1}}
}
func (i *goneInterface) Buffers() *framework.Buffers { i.touch(); return &i.memory }
func (i *goneInterface) Alloc(_ int, dst []framework.Buffer) int {
	i.touch()
	clear(dst)
	i.out.Add(int64(len(dst)))
	return len(dst)
}
func (i *goneInterface) Send(_ int, b *framework.Batch) int {
	i.touch()
	n := len(b.Packets) / 2 // there is always something that waits
	i.out.Add(-int64(n))
	return n
}
func (i *goneInterface) Release(_ int, bufs []framework.Buffer) {
	i.touch()
	i.out.Add(-int64(len(bufs)))
}

// The stack's timers can come with packets after Close. They find no interface:
// its memory may be unmapped.
func TestNothingAfterClose(t *testing.T) {
	p, err := New(Options{Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}})
	if err != nil {
		t.Fatal(err)
	}
	i := &goneInterface{memory: framework.Buffers{Memory: make([]byte, 4096), Stride: 4096, Size: 2048, Count: 1}}
	if err := p.Attach(i); err != nil {
		t.Fatal(err)
	}
	write := func() {
		var list stack.PacketBufferList
		pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{
			ReserveHeaderBytes: header.EthernetMinimumSize, Payload: buffer.MakeWithData(make([]byte, 100)),
		})
		list.PushBack(pkt)
		if _, err := p.link.WritePackets(list); err != nil {
			t.Error(err)
		}
		list.Reset()
	}
	stop := make(chan struct{})
	var writing sync.WaitGroup
	for range 2 {
		writing.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					write()
				}
			}
		})
	}
	write()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	i.gone.Store(true)
	write()
	p.TxReady(0)
	close(stop)
	writing.Wait()
	if n := i.late.Load(); n != 0 {
		t.Errorf("%d calls after Close", n)
	}
	if n := i.out.Load(); n != 0 {
		t.Errorf("%d buffers kept", n)
	}
}
