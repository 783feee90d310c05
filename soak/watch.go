package soak

import (
	"fmt"
	"sync"
	"time"

	"nicd/daemon"
)

// sampling is how often a watcher looks.
const sampling = 10 * time.Millisecond

// streamRecord is what a watcher saw of a stream.
type streamRecord struct {
	name    string
	bytes   uint64
	moved   time.Time     // when bytes grew last
	longest time.Duration // longest time in which they did not
}

// watcher looks at the streams of a daemon, all the time.
type watcher struct {
	look   func() []daemon.Progress
	limit  time.Duration
	ending chan struct{}
	joined sync.WaitGroup

	mu      sync.Mutex
	streams []streamRecord
	found   []string
}

func watch(look func() []daemon.Progress, limit time.Duration) *watcher {
	w := &watcher{look: look, limit: limit, ending: make(chan struct{})}
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
		select {
		case <-w.ending:
			return
		case <-ticker.C:
		}
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
			s.bytes, s.moved = p.Bytes, now
			continue
		}
		if still > w.limit {
			w.found = append(w.found, fmt.Sprintf("stream %s stalled: nothing arrived for more than %v", s.name, w.limit))
			s.moved = now
		}
	}
}

// problems are the stalls that were found since the last call.
func (w *watcher) problems() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := w.found
	w.found = nil
	return found
}
