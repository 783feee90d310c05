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
	// The processes when bytes had not grown for half of the limit; nil before.
	half []schedstat.Process
}

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
			w.streams = append(w.streams, streamRecord{name: p.Name, bytes: p.Bytes, moved: now})
		}
		s := &w.streams[n]
		still := now.Sub(s.moved)
		s.longest = max(s.longest, still)
		if p.Bytes > s.bytes {
			s.bytes, s.moved, s.half = p.Bytes, now, nil
			continue
		}
		if s.half == nil && still > w.limit/2 {
			s.half = w.processes()
		}
		if still > w.limit {
			w.found = append(w.found, fmt.Sprintf("stream %s stalled: nothing arrived for more than %v; %s", s.name, w.limit, blame(uses(s.half))))
			s.moved, s.half = now, nil
		}
	}
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
		w.streams[n].moved = w.streams[n].moved.Add(d)
	}
}

func (w *watcher) processes() (all []schedstat.Process) {
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

// blame tells a stall of nicd's from one of the machine's: whether a process that
// should have moved data was kept from it.
func blame(uses []schedstat.Use) string {
	var worst schedstat.Use
	for _, u := range uses {
		if u.Stopped {
			worst = u
			break
		}
		if u.Waited >= worst.Waited {
			worst = u
		}
	}
	if worst.Starved() {
		return "the machine's fault: " + worst.String()
	}
	return "not for want of processors: at most, " + worst.String()
}

// problems are the stalls that were found since the last call.
func (w *watcher) problems() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := w.found
	w.found = nil
	return found
}
