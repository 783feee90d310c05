package vmxnet3

import (
	"reflect"
	"testing"

	"nicd/bus"
	"nicd/framework"
	"nicd/framework/link"
)

// TestFitsArena: the longest rings of all queues fit what an arena has for rings if
// nobody says how much that is.
func TestFitsArena(t *testing.T) {
	arena, err := link.Options{Queues: maxQueues}.Layout()
	if err != nil {
		t.Fatal(err)
	}
	dma := &heapDMA{mem: bus.HeapMemory(arena.DMASize)}
	d := &device{regs: registers{pt: &fakeRegion{}, vd: &fakeRegion{}}, dma: dma, quirks: framework.NewQuirkSet()}
	if _, err := d.build(framework.Config{
		RxQueues: maxQueues, TxQueues: maxQueues, RxDescriptors: maxRing, TxDescriptors: maxRing,
		Buffers: &framework.Buffers{Stride: testBuffer + 64, Size: testBuffer, Count: 1},
	}); err != nil {
		t.Fatal(err)
	}
	if dma.used < arena.DMASize/2 {
		t.Errorf("%d of %d bytes: an arena has too much", dma.used, arena.DMASize)
	}
}

// TestLayout compares the structures with offsets of vmxnet3_defs.h.
func TestLayout(t *testing.T) {
	for _, c := range []struct {
		of   reflect.Type
		size uintptr
		at   map[string]uintptr
	}{
		{reflect.TypeFor[driverShared](), sharedSize, map[string]uintptr{
			"magic": 0, "guestOS": 12, "features": 24, "queues": 40, "queuesLen": 52, "mtu": 56, "maxRxSG": 60, "txQueues": 62,
			"rxQueues": 63, "autoMask": 80, "numVectors": 81, "eventVector": 82, "moderation": 83, "interruptControl": 108,
			"rxMode": 120, "multicastLen": 124, "multicast": 128, "vlans": 136, "rssVersion": 648, "rssLen": 652, "rss": 656,
			"events": 696, "commandInfo": 704,
		}},
		{reflect.TypeFor[queueDesc](), queueDescSize, map[string]uintptr{
			"control": 0, "threshold": 4, "rings": 16, "comp": 32, "driverData": 40, "sizes": 56, "compSize": 64, "vector": 72,
			"dataDescSize": 74, "stopped": 80, "error": 84, "stats": 88,
		}},
		{reflect.TypeFor[rssConf](), rssConfSize, map[string]uintptr{
			"types": 0, "function": 2, "keySize": 4, "tableSize": 6, "key": 8, "table": 48,
		}},
		{reflect.TypeFor[txDesc](), 16, map[string]uintptr{"frame": 8, "flags": 12}},
		{reflect.TypeFor[txComp](), 16, nil},
		{reflect.TypeFor[rxDesc](), 16, nil},
		{reflect.TypeFor[rxComp](), 16, map[string]uintptr{"hash": 4, "data": 8, "flags": 12}},
		{reflect.TypeFor[sharedMemory](), 9136, map[string]uintptr{"queues": 6 * 128}},
	} {
		if c.of.Size() != c.size {
			t.Errorf("%v has %d bytes, want %d", c.of, c.of.Size(), c.size)
		}
		for name, want := range c.at {
			if f, ok := c.of.FieldByName(name); !ok || f.Offset != want {
				t.Errorf("%v.%s at %d, want %d", c.of, name, f.Offset, want)
			}
		}
	}
}
