package drivertest

import (
	"nicd/framework"
)

var slotChecks = []*check{
	{name: "slot.skipped", needs: []Ability{SkippedSlots}, run: func(t *c) { t.slots(Setup{SkipEvery: 2}) },
		doc: "Descriptors that the device passes over cost no frame and no buffer."},
	{name: "slot.empty", needs: []Ability{EmptyBuffers}, run: func(t *c) { t.slots(Setup{EmptyEvery: 2}) },
		doc: "Completions of nothing are no packets, and their buffers go back."},
	{name: "slot.empty-inside", needs: []Ability{EmptyBuffers}, run: func(t *c) { t.slots(Setup{EmptyInsideEvery: 1}) },
		doc: "An empty buffer inside a packet of several is left out of it, and goes back."},
	{name: "slot.all", needs: []Ability{SkippedSlots, EmptyBuffers}, run: func(t *c) { t.slots(Setup{SkipEvery: 3, EmptyEvery: 2, EmptyInsideEvery: 2}) },
		doc: "Skipped and empty descriptors together cost no frame and no buffer."},
}

// slots receives frames of one and of several buffers, around the rings, and wants
// the rings to be as full at the end as they were at first.
func (t *c) slots(s Setup) {
	n := t.jumboNet(on{Setup: s})
	frames := t.turns(400)
	for i := range frames {
		size := 60 + i%1200
		if i%2 == 1 {
			size = 2000 + i*37%6900
		}
		n.Inject(in(i, size))
		got := n.Receive(1)[0]
		t.same(got, in(i, size))
		for _, f := range got.Fragments {
			if f.Len == 0 {
				t.Errorf("frame %d has an empty fragment", i)
			}
		}
	}
	n.Quiet()
	n.Refill(0)
	if most := max(n.Info.RxRings, 1) * (n.Config.RxDescriptors - 1); n.Posted() != most {
		t.Errorf("%d buffers are with the device after %d frames; %d were at first", n.Posted(), frames, most)
	}
	if v := n.Queues.Rx[0].Poll(framework.NewBatch(4, 4*framework.MaxFragments)); v != framework.Healthy {
		t.Errorf("verdict %d", v)
	}
}
