package lro

// HoldOptions configure a Holder.
type HoldOptions struct {
	// MaxAge is how long the first packet of an aggregate is held at most, in the unit of the caller's clock. 0 or less
	// holds nothing, which makes a Holder a slower Engine.Batch.
	MaxAge int64
	// MaxHeld is the largest number of packets held between two calls; 0 means 256. If there are more, all are released.
	MaxHeld int
}

// Holder coalesces across batches: an aggregate that nothing has ended stays open for the next batch, up to an age.
//
// It trades latency for larger aggregates, and is worth it only where batches are small because the device interrupts
// often. Nothing leaves it by itself: the caller, whose clock it is, has to call Add again (with no packets, if none
// came) before MaxAge is over. The rules of merging and of order within a flow are those of Engine.Batch; packets of
// other flows, and those that pass alone, overtake what is held.
//
// A Holder has one owner at a time, like an Engine. It keeps the packets, and so references to the caller's buffers,
// until it has released them. Once its slices have grown it allocates nothing.
type Holder struct {
	engine  *Engine
	options HoldOptions
	packets []Packet    // what the last outputs and the held aggregates refer to
	spare   []Packet    // the other half: held packets move there with the next call
	all     []Aggregate // outputs that are held, in the order of their heads; during Add also the new ones
	born    []int64     // when the heads came, in parallel with all
	index   []int32     // where an output has moved to, -1 if it was released; in parallel with all
}

// NewHolder returns a Holder with an engine of its own.
func NewHolder(o Options, h HoldOptions) *Holder {
	h.MaxHeld = clamp(h.MaxHeld, 256, 1<<20)
	return &Holder{engine: New(o), options: h}
}

// Stats returns a copy of the engine's counters.
func (h *Holder) Stats() Stats { return h.engine.stats }

// SetMTU changes Options.MTU between two calls of Add.
func (h *Holder) SetMTU(mtu int) { h.engine.SetMTU(mtu) }

// Packets returns the packets that the indexes in the outputs of the last Add refer to. They are copies of what was
// given to Add, with their result fields; Packet.Handle tells which is which. The slice is valid until the next call.
func (h *Holder) Packets() []Packet { return h.packets }

// Held returns the number of packets that are held.
func (h *Holder) Held() int {
	n := 0
	for i := range h.all {
		n += int(h.all[i].Segments)
	}
	return n
}

// Add takes a batch that arrived at time now and appends to out what is released: whatever has ended, and whatever is as
// old as MaxAge. now must not go back.
func (h *Holder) Add(in []Packet, now int64, out []Aggregate) []Aggregate {
	e := h.engine
	h.move()
	from := len(h.packets)
	h.packets = append(h.packets, in...)
	h.all = e.run(h.packets, from, h.all)
	for len(h.born) < len(h.all) {
		h.born = append(h.born, now)
	}
	h.expire(now)
	e.stats.Batches++
	e.stats.Packets += uint64(len(in))
	return h.release(out)
}

// Flush appends everything that is held to out.
func (h *Holder) Flush(out []Aggregate) []Aggregate {
	h.move()
	h.engine.closeAll(ReasonBatchEnd)
	return h.release(out)
}

// move puts the packets that are held at the beginning of the spare slice, each aggregate's one after another, so that
// those released by the last call go away.
func (h *Holder) move() {
	to := h.spare[:0]
	for i := range h.all {
		a := &h.all[i]
		head := int32(len(to))
		for j := a.Head; j >= 0; j = h.packets[j].Next {
			to = append(to, h.packets[j])
			to[len(to)-1].Next = int32(len(to))
		}
		a.Head, a.Tail = head, int32(len(to)-1)
		to[a.Tail].Next = -1
	}
	clear(h.packets) // no references to released buffers
	h.packets, h.spare = to, h.packets
}

// expire ends the aggregates that are too old, and all if there are too many packets.
func (h *Holder) expire(now int64) {
	e, held := h.engine, 0
	for _, i := range e.table.used {
		x := e.table.at(i)
		if x.out < 0 {
			continue
		}
		if now-h.born[x.out] >= h.options.MaxAge {
			e.close(x, ReasonExpired)
			continue
		}
		held += int(h.all[x.out].Segments)
	}
	if held > h.options.MaxHeld {
		e.closeAll(ReasonEvicted)
	}
}

// release appends the outputs that have ended to out and keeps the others.
func (h *Holder) release(out []Aggregate) []Aggregate {
	e := h.engine
	h.index = h.index[:0]
	for range h.all {
		h.index = append(h.index, -1)
	}
	for _, i := range e.table.used {
		if x := e.table.at(i); x.out >= 0 {
			h.index[x.out] = 0
		}
	}
	kept := 0
	for i := range h.all {
		a := &h.all[i]
		if h.index[i] >= 0 {
			h.index[i] = int32(kept)
			h.all[kept], h.born[kept] = *a, h.born[i]
			kept++
			continue
		}
		members := uint64(1)
		if a.Head != a.Tail {
			members = uint64(a.Segments)
			e.finish(h.packets, a)
		}
		e.stats.Outputs++
		e.stats.Merged += members - 1
		out = append(out, *a)
	}
	for _, i := range e.table.used {
		if x := e.table.at(i); x.out >= 0 {
			x.out = h.index[x.out]
		}
	}
	h.all, h.born = h.all[:kept], h.born[:kept]
	if kept == 0 {
		e.table.forget()
	}
	return out
}
