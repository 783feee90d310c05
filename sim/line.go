package sim

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Faults is what goes wrong on a wire. Chances are from 0 to 1 and are drawn, by
// Seed and in the order of sending, for each frame that would be on a wire of
// Ethernet: TSO frames are cut and checksums filled in first. The zero value is
// a perfect wire.
type Faults struct {
	Seed      uint64
	Lose      float64
	Duplicate float64
	// Reorder is the chance that a frame is held back behind one to three later
	// ones (or for a millisecond, if fewer are sent).
	Reorder float64
	// Corrupt is the chance that one bit of a frame is flipped.
	Corrupt float64
	// Delay is how long a frame is under way, Jitter how much longer at most.
	// Neither changes the order.
	Delay, Jitter time.Duration
}

func (f Faults) none() bool { f.Seed = 0; return f == Faults{} }

const (
	lineCapacity = 4096 // frames under way
	lineBatch    = 32
	reorderHold  = time.Millisecond
)

// parcel is a frame under way.
type parcel struct {
	frame Frame
	part  [1][]byte
	due   time.Duration
}

// held is a parcel that others overtake.
type held struct {
	parcel *parcel
	behind int           // so many more parcels overtake it
	until  time.Duration // at most
}

// line is the way from one port to the others when something goes wrong on it:
// a queue of copies and a goroutine that delivers them.
type line struct {
	port  *Port
	clock Clock
	timer Timer
	wake  chan struct{}
	stop  chan struct{}
	done  sync.WaitGroup
	end   sync.Once

	mu     sync.Mutex
	faults Faults
	rng    *rand.Rand
	queue  []*parcel
	held   []held
	free   []*parcel
	busy   bool // the goroutine is delivering
	paused bool // a sender was refused
	cut    int  // segments of the next frame that are queued already
}

func newLine(p *Port, f Faults) *line {
	l := &line{
		port:  p,
		clock: p.wire.opt.Clock,
		wake:  make(chan struct{}, 1),
		stop:  make(chan struct{}),
	}
	l.timer = l.clock.NewTimer(l.kick)
	l.set(f)
	l.done.Add(1)
	go l.run()
	return l
}

func (l *line) set(f Faults) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = f
	l.rng = rand.New(rand.NewPCG(f.Seed, 0x6e696364))
}

// active tells whether frames have to go this way: something can go wrong, or
// earlier ones are still under way.
func (l *line) active() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.faults.none() || l.busy || len(l.queue)+len(l.held) > 0 || l.cut > 0
}

func (l *line) abandon() {
	l.mu.Lock()
	l.cut = 0
	l.mu.Unlock()
}

func (l *line) kick() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *line) close() {
	l.end.Do(func() { close(l.stop) })
	l.done.Wait()
	l.timer.Stop()
}

// send queues copies of frames and returns how many had room. So many segments of the
// first have arrived already, before there was anything to go wrong.
func (l *line) send(frames []Frame, arrived int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.kick()
	l.cut = max(l.cut, arrived)
	pause := !l.port.wire.opt.NoFlowControl && len(*l.port.wire.ports.Load()) == 2
	for i := range frames {
		if !l.sendOne(&frames[i], pause) {
			l.paused = true
			return i
		}
	}
	return len(frames)
}

func (l *line) sendOne(f *Frame, pause bool) bool {
	for total := l.port.seg.Count(f); l.cut < total; {
		segs := l.port.seg.Cut(f, l.cut, true)
		for i := range segs {
			full := len(l.queue)+len(l.held) >= lineCapacity
			if full && pause {
				return false
			}
			if full {
				l.port.stats.lost.Add(1)
			} else {
				l.carry(&segs[i])
			}
			l.cut++
		}
	}
	l.cut = 0
	return true
}

// carry draws a frame's fate.
func (l *line) carry(f *Frame) {
	stats := &l.port.stats
	lose, twice := l.chance(l.faults.Lose), l.chance(l.faults.Duplicate)
	late, corrupt := l.chance(l.faults.Reorder), l.chance(l.faults.Corrupt)
	if lose {
		stats.lost.Add(1)
		return
	}
	p := l.copy(f)
	if corrupt {
		stats.corrupted.Add(1)
		bit := l.rng.IntN(8 * p.frame.Len)
		p.part[0][bit/8] ^= 1 << (bit % 8)
		p.frame.Flags &^= Good
	}
	if twice {
		stats.doubled.Add(1)
		l.enqueue(l.copy(&p.frame))
	}
	if late {
		stats.reordered.Add(1)
		l.held = append(l.held, held{p, 1 + l.rng.IntN(3), l.clock.Now() + reorderHold})
		return
	}
	l.enqueue(p)
	l.overtaken()
}

func (l *line) chance(p float64) bool { return p > 0 && l.rng.Float64() < p }

func (l *line) copy(f *Frame) *parcel {
	p := &parcel{}
	if n := len(l.free); n > 0 {
		p, l.free = l.free[n-1], l.free[:n-1]
	}
	if cap(p.part[0]) < f.Len {
		p.part[0] = make([]byte, f.Len)
	}
	p.part[0] = p.part[0][:f.Len]
	f.CopyTo(p.part[0], 0)
	p.frame = Frame{Parts: p.part[:], Len: f.Len, Flags: f.Flags & Good}
	return p
}

func (l *line) enqueue(p *parcel) {
	p.due = l.clock.Now() + l.faults.Delay
	if l.faults.Jitter > 0 {
		p.due += time.Duration(l.rng.Int64N(int64(l.faults.Jitter)))
	}
	if n := len(l.queue); n > 0 {
		p.due = max(p.due, l.queue[n-1].due)
	}
	l.queue = append(l.queue, p)
}

// overtaken counts that a parcel overtook the held ones.
func (l *line) overtaken() {
	kept := l.held[:0]
	for _, h := range l.held {
		if h.behind--; h.behind == 0 {
			l.enqueue(h.parcel)
		} else {
			kept = append(kept, h)
		}
	}
	l.held = kept
}

// run delivers what is due until the line is closed.
func (l *line) run() {
	defer l.done.Done()
	var batch []*parcel
	frames := make([]Frame, lineBatch)
	for {
		batch = l.take(batch[:0])
		if len(batch) > 0 {
			if !l.deliver(batch, frames) {
				return
			}
			l.give(batch)
			continue
		}
		select {
		case <-l.wake:
		case <-l.stop:
			return
		}
	}
}

// take moves what is due to batch, or sets the timer for what is next.
func (l *line) take(batch []*parcel) []*parcel {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	next := l.releaseHeld(now)
	n := 0
	for n < len(l.queue) && n < lineBatch && l.queue[n].due <= now {
		n++
	}
	batch = append(batch, l.queue[:n]...)
	l.queue = append(l.queue[:0], l.queue[n:]...)
	l.busy = n > 0
	if n == 0 && len(l.queue) > 0 && (next == 0 || l.queue[0].due < next) {
		next = l.queue[0].due
	}
	if n == 0 && next > 0 {
		l.timer.Set(next)
	}
	return batch
}

// releaseHeld queues the held parcels that waited long enough and returns when
// the next one will have.
func (l *line) releaseHeld(now time.Duration) (next time.Duration) {
	kept := l.held[:0]
	for _, h := range l.held {
		if h.until <= now {
			l.enqueue(h.parcel)
			continue
		}
		if next == 0 || h.until < next {
			next = h.until
		}
		kept = append(kept, h)
	}
	l.held = kept
	return next
}

// deliver hands a batch to the other ends; it waits while one has no room. It
// returns false if the line was closed meanwhile.
func (l *line) deliver(batch []*parcel, frames []Frame) bool {
	for i, p := range batch {
		frames[i] = p.frame
	}
	frames = frames[:len(batch)]
	ports := *l.port.wire.ports.Load()
	pause := len(ports) == 2 && !l.port.wire.opt.NoFlowControl
	for _, q := range ports {
		for rest := frames; q != l.port && !q.off.Load() && !l.port.wire.down.Load(); {
			rest = rest[q.end.Receive(rest, pause):]
			if len(rest) == 0 {
				break
			}
			select {
			case <-l.wake:
			case <-l.stop:
				return false
			}
		}
	}
	return true
}

// give takes delivered parcels back and lets a sender go on.
func (l *line) give(batch []*parcel) {
	l.mu.Lock()
	l.free = append(l.free, batch...)
	l.busy = len(l.queue) > 0
	resume := l.paused && len(l.queue) < lineCapacity/2
	if resume {
		l.paused = false
	}
	l.mu.Unlock()
	if resume {
		l.port.end.Resume()
	}
}
