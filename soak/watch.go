package soak

import (
	"fmt"
	"sync"
	"time"

	"nicd/daemon"
	"nicd/internal/schedstat"
)

// sampling is how often a watcher looks. One that slept as long as overslept was not
// let look: what the streams did meanwhile says nothing about nicd.
const (
	sampling  = 10 * time.Millisecond
	overslept = 10 * sampling
)

// streamRecord is what a watcher saw of a stream.
type streamRecord struct {
	name    string
	bytes   uint64
	moved   time.Time     // when bytes grew last
	longest time.Duration // longest time in which they did not
	judged  time.Time     // what was before was judged, or moved
	// The processes when half of the limit had gone since then; nil before.
	half []schedstat.Process
}

// forgiven is how many limits a stream may stand still for want of processors. What
// takes longer is not believed.
const forgiven = 10

// watcher looks at the streams of a daemon, all the time.
type watcher struct {
	look   func() []daemon.Progress
	pids   func() []int // whoever moves the streams
	limit  time.Duration
	ending chan struct{}
	joined sync.WaitGroup

	mu      sync.Mutex
	streams []streamRecord
	found   []string
	blind   time.Duration // in which it was not let look
	starved int           // pauses beyond the limit that were the machine's fault
}

func watch(look func() []daemon.Progress, pids func() []int, limit time.Duration) *watcher {
	w := &watcher{look: look, pids: pids, limit: limit, ending: make(chan struct{})}
	w.joined.Go(w.run)
	return w
}

// stop ends the watch and returns what was seen.
func (w *watcher) stop() []streamRecord {
	close(w.ending)
	w.joined.Wait()
	return w.streams
}

func (w *watcher) run() {
	ticker := time.NewTicker(sampling)
	defer ticker.Stop()
	for {
		w.note(time.Now())
		began := time.Now() // not before: a look that takes long is nicd's fault
		select {
		case <-w.ending:
			return
		case <-ticker.C:
		}
		w.slept(time.Since(began))
	}
}

// note notes which streams have moved.
func (w *watcher) note(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for n, p := range w.look() {
		if n == len(w.streams) {
			w.streams = append(w.streams, streamRecord{name: p.Name, bytes: p.Bytes, moved: now, judged: now})
		}
		s := &w.streams[n]
		still := now.Sub(s.moved)
		s.longest = max(s.longest, still)
		if p.Bytes > s.bytes {
			s.bytes, s.moved, s.judged, s.half = p.Bytes, now, now, nil
			continue
		}
		if s.half == nil && now.Sub(s.judged) > w.limit/2 {
			s.half = w.processes()
		}
		if now.Sub(s.judged) > w.limit {
			w.judge(s, still)
			s.judged, s.half = now, nil
		}
	}
}

// judge says whose fault it is that a stream stands still for so long.
func (w *watcher) judge(s *streamRecord, still time.Duration) {
	worst := worst(uses(s.half))
	if worst.Starved() && still < forgiven*w.limit {
		w.starved++
		return
	}
	w.found = append(w.found, fmt.Sprintf("stream %s stalled: nothing arrived for %v, of late with this excuse at the most: %v",
		s.name, still.Round(time.Millisecond), worst))
}

// slept takes from every stream's pause the time in which nobody looked because the
// machine was not there, or this process was stopped.
func (w *watcher) slept(d time.Duration) {
	if d < overslept {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blind += d
	for n := range w.streams {
		s := &w.streams[n]
		s.moved, s.judged = s.moved.Add(d), s.judged.Add(d)
	}
}

func (w *watcher) processes() []schedstat.Process {
	all := []schedstat.Process{} // not nil, also if there are none
	for _, pid := range w.pids() {
		all = append(all, schedstat.Look(pid))
	}
	return all
}

// uses is what has become of processes since.
func uses(since []schedstat.Process) (all []schedstat.Use) {
	for _, was := range since {
		all = append(all, schedstat.Look(was.PID).Since(was))
	}
	return all
}

// worst is what was kept from running most. It tells a stall of nicd's from one of
// the machine's.
func worst(uses []schedstat.Use) (w schedstat.Use) {
	for _, u := range uses {
		if u.Stopped {
			return u
		}
		if u.Waited >= w.Waited {
			w = u
		}
	}
	return w
}

// problems are the stalls that were found since the last call.
func (w *watcher) problems() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := w.found
	w.found = nil
	return found
}
