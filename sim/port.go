package sim

import "sync/atomic"

// Port is an end's side of a wire.
type Port struct {
	wire *Wire
	end  End
	line atomic.Pointer[line] // what goes wrong with frames from here; nil if nothing ever did

	off atomic.Bool // disconnected

	// Of Send, whose calls do not overlap.
	cut int // segments of the first frame that the peer has taken already
	seg Segmenter

	watch atomic.Pointer[func([]Frame)]
	stats portCounters
}

// PortStats count the frames that an end sent. They start at zero and only grow.
type PortStats struct {
	Frames    uint64 // taken from the end, a TSO frame as one
	Bytes     uint64
	LinkDown  uint64 // of Frames: lost because the link was down
	Paused    uint64 // times that Send stopped because a receiver had no buffer
	Segmented uint64 // frames that were cut for a receiver
	Lost      uint64 // by the wire's faults, counted in segments, as are the following
	Doubled   uint64
	Reordered uint64
	Corrupted uint64
}

type portCounters struct {
	frames, bytes, linkDown, paused, segmented atomic.Uint64
	lost, doubled, reordered, corrupted        atomic.Uint64
}

func newPort(w *Wire, e End) *Port { return &Port{wire: w, end: e} }

// Stats are the port's counters.
func (p *Port) Stats() PortStats {
	c := &p.stats
	return PortStats{
		Frames: c.frames.Load(), Bytes: c.bytes.Load(), LinkDown: c.linkDown.Load(),
		Paused: c.paused.Load(), Segmented: c.segmented.Load(),
		Lost: c.lost.Load(), Doubled: c.doubled.Load(),
		Reordered: c.reordered.Load(), Corrupted: c.corrupted.Load(),
	}
}

// Send carries frames to the other ends and returns how many were taken. The
// bytes are the sender's again when it returns. Calls must not overlap.
//
// If not all were taken, a receiver is out of buffers: End.Resume is called when
// it has some. The first frame that was not taken, part of which may have
// arrived already, must then be the first that is sent, unless Abandon is called
// before.
func (p *Port) Send(frames []Frame) int {
	n := p.send(frames)
	if w := p.watch.Load(); w != nil {
		(*w)(frames[:n])
	}
	bytes := 0
	for i := range frames[:n] {
		bytes += frames[i].Len
	}
	p.stats.frames.Add(uint64(n))
	p.stats.bytes.Add(uint64(bytes))
	if n < len(frames) {
		p.stats.paused.Add(1)
	}
	return n
}

func (p *Port) send(frames []Frame) int {
	if p.wire.down.Load() || p.off.Load() {
		p.Abandon()
		p.stats.linkDown.Add(uint64(len(frames)))
		return len(frames)
	}
	if l := p.line.Load(); l != nil && l.active() {
		arrived := p.cut
		p.cut = 0
		return l.send(frames, arrived)
	}
	return p.deliver(frames, !p.wire.opt.NoFlowControl)
}

// deliver hands frames to all other ends.
func (p *Port) deliver(frames []Frame, pause bool) int {
	ports := *p.wire.ports.Load()
	if len(ports) == 2 {
		peer := ports[0]
		if peer == p {
			peer = ports[1]
		}
		return p.deliverTo(peer.end, frames, pause)
	}
	for _, q := range ports {
		if q != p {
			p.deliverTo(q.end, frames, false)
		}
	}
	p.cut = 0 // there may be nobody to get the rest of a frame
	return len(frames)
}

// deliverTo hands frames to one end in the form that it wants, as many at a time
// as possible.
func (p *Port) deliverTo(end End, frames []Frame, pause bool) int {
	wants, done := end.Wants(), 0
	for done < len(frames) {
		n := 0
		if p.cut == 0 {
			n = runAsIs(frames[done:], wants)
		}
		if n == 0 {
			if !p.deliverCut(end, &frames[done], wants, pause) {
				return done
			}
			done++
			continue
		}
		took := end.Receive(frames[done:done+n], pause)
		done += took
		if took < n {
			return done
		}
	}
	return done
}

// runAsIs is how many frames at the start an end takes as they are.
func runAsIs(frames []Frame, wants Wants) int {
	var reject FrameFlags
	if !wants.Segment {
		reject |= Segment
	}
	if !wants.Partial {
		reject |= Partial
	}
	for i := range frames {
		// A TSO frame is Partial too; who wants it whole takes it so.
		f := frames[i].Flags
		if f&reject != 0 && !(f&Segment != 0 && wants.Segment) {
			return i
		}
	}
	return len(frames)
}

// deliverCut cuts and fills in one frame and tells whether all of it was taken.
func (p *Port) deliverCut(end End, f *Frame, wants Wants, pause bool) bool {
	if p.cut == 0 && f.Flags&Segment != 0 {
		p.stats.segmented.Add(1)
	}
	for total := p.seg.Count(f); p.cut < total; {
		segs := p.seg.Cut(f, p.cut, !wants.Partial)
		took := end.Receive(segs, pause)
		p.cut += took
		if took < len(segs) {
			return false
		}
	}
	p.cut = 0
	return true
}

// Watch has w called with the frames of each Send that were taken, whatever
// becomes of them on the wire. Their bytes are w's until it returns.
func (p *Port) Watch(w func(frames []Frame)) { p.watch.Store(&w) }

// Abandon says that the frame that Send did not take will not be sent again.
// Calls must not overlap with Send.
func (p *Port) Abandon() {
	p.cut = 0
	if l := p.line.Load(); l != nil {
		l.abandon()
	}
}

// Room says that the port's end has buffers again. It may be called by any
// goroutine and does not block.
func (p *Port) Room() {
	for _, q := range *p.wire.ports.Load() {
		if q != p {
			q.resume()
		}
	}
}

// Arriving are the counters, added up, of all other ports of the wire: of what has
// been on its way to this one.
func (p *Port) Arriving() PortStats {
	var sum PortStats
	for _, q := range *p.wire.ports.Load() {
		if q != p {
			sum.add(q.Stats())
		}
	}
	return sum
}

func (s *PortStats) add(o PortStats) {
	s.Frames += o.Frames
	s.Bytes += o.Bytes
	s.LinkDown += o.LinkDown
	s.Paused += o.Paused
	s.Segmented += o.Segmented
	s.Lost += o.Lost
	s.Doubled += o.Doubled
	s.Reordered += o.Reordered
	s.Corrupted += o.Corrupted
}

// resume tells everything that sends from here that a receiver has room.
func (p *Port) resume() {
	if l := p.line.Load(); l != nil {
		l.kick()
	}
	p.end.Resume()
}

// impair makes f what goes wrong with frames from here.
func (p *Port) impair(f Faults) {
	if l := p.line.Load(); l != nil {
		l.set(f)
	} else if !f.none() {
		p.line.Store(newLine(p, f))
	}
}

func (p *Port) close() {
	if l := p.line.Load(); l != nil {
		l.close()
	}
}
