package qemu

import (
	"sync"
	"time"
)

// parts are what a limit is waited for in. One that takes longer than it should counts
// once: while this process was stopped, or the machine away, nobody saw what QEMU
// answered.
const parts = 4

// waitLimit calls over when a wait has taken too long. Its waits come one after another;
// any goroutine may begin or end one.
type waitLimit struct {
	part time.Duration
	over func()

	mu    sync.Mutex
	left  int // parts; 0 while nobody waits
	timer *time.Timer
}

func newWaitLimit(limit time.Duration, over func()) *waitLimit {
	p := &waitLimit{part: limit / parts, over: over}
	p.timer = time.AfterFunc(limit, p.lose)
	p.timer.Stop()
	return p
}

// begin begins a wait.
func (p *waitLimit) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = parts
	p.timer.Reset(p.part)
}

// end ends it.
func (p *waitLimit) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = 0
	p.timer.Stop()
}

// lose is called when a part has passed. One of a wait that has ended meanwhile may
// shorten the next one.
func (p *waitLimit) lose() {
	p.mu.Lock()
	left := p.left - 1
	if left >= 0 {
		p.left = left
	}
	if left > 0 {
		p.timer.Reset(p.part)
	}
	p.mu.Unlock()
	if left == 0 {
		p.over()
	}
}
