package engine

import "nicd/framework"

// forsake adapts what is prepared and not yet put to features being taken away.
// A segment of a packet that was cut, of which the device may have others, is
// finished in software; its headers lie in one of the engine's buffers, with
// room in front. Another packet is dropped. The task is halted.
func (q *txQueue) forsake(lost framework.Features) {
	needs := framework.PacketFlags(0)
	if lost&framework.TxChecksum != 0 {
		needs |= framework.ChecksumPartial
	}
	if lost&(framework.TSO4|framework.TSO6) != 0 {
		needs |= framework.Segment
	}
	if lost&framework.VLANInsert != 0 {
		needs |= framework.VLANTag
	}
	if needs == 0 || q.stage.empty() {
		return
	}
	old := q.stage
	q.stage = newTxStage()
	for i := old.put; i < len(old.out.Packets); i++ {
		q.draft.reset(old.out, i)
		what := all
		if !old.plain {
			what = old.parts[i]
			q.draft.bufs = append(q.draft.bufs[:0], old.of(i)...)
		}
		q.adapt(what, needs)
	}
	q.settle()
}

// adapt appends the draft to the stage without the flags of needs, or drops it.
func (q *txQueue) adapt(what part, needs framework.PacketFlags) {
	d := &q.draft
	flags := d.packet.Flags & needs
	switch {
	case flags == 0:
	case what == all:
		q.count[TxDropStopped]++
		for _, b := range d.bufs {
			q.release(b)
		}
		return
	default:
		if flags&framework.ChecksumPartial != 0 {
			q.fillChecksum()
		}
		if flags&framework.VLANTag != 0 {
			q.insertTag()
		}
	}
	q.commit(what)
}
