package engine

import "nicd/framework"

// forsake adapts what is prepared and not yet put to features being taken away.
// A segment of a packet that was cut, of which the device may have others, is
// finished in software; its headers lie in one of the engine's buffers, with
// room in front. Another packet is dropped. The task is halted.
func (q *txQueue) forsake(lost framework.Features) {
	const used = framework.TxChecksum | framework.TSO4 | framework.TSO6 | framework.USO | framework.VLANInsert
	if lost&used == 0 || q.stage.empty() {
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
		q.adapt(what, asked(&q.draft.packet, lost))
	}
	q.settle()
}

// asked are the flags by which p asks the device for one of features.
func asked(p *framework.Packet, features framework.Features) (flags framework.PacketFlags) {
	if features.Has(framework.TxChecksum) {
		flags |= framework.ChecksumPartial
	}
	if features.Has(framework.VLANInsert) {
		flags |= framework.VLANTag
	}
	if features&segmentedBy(p) != 0 {
		flags |= framework.Segment
	}
	return flags & p.Flags
}

// adapt appends the draft to the stage without flags, or drops it.
func (q *txQueue) adapt(what part, flags framework.PacketFlags) {
	d := &q.draft
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
			r := q.rules.Load()
			q.insertTag(r)
			if r.pageShift != onePiece {
				q.split(r)
			}
		}
	}
	q.commit(what)
}
