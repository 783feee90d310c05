package soak

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"
)

// resources is what this process and the drivers' have.
type resources struct {
	goroutines  int
	descriptors map[int]int // by process
	memory      uint64      // private, of all
}

// slack is how much more there may be at the end: connections' timers come and go,
// and a heap is never twice of the same size.
const (
	slackGoroutines  = 4
	slackDescriptors = 2
	slackMemory      = 64 << 20
)

// ownResources is what this process has.
func ownResources() resources {
	return resources{
		goroutines:  runtime.NumGoroutine(),
		descriptors: map[int]int{os.Getpid(): descriptors(os.Getpid())},
	}
}

// resources is what a running daemon has.
func (r *run) resources() resources {
	runtime.GC()
	debug.FreeOSMemory()
	n := resources{goroutines: runtime.NumGoroutine(), descriptors: map[int]int{}, memory: r.daemon.PrivateMemory()}
	for _, pid := range r.daemon.Processes() {
		n.descriptors[pid] = descriptors(pid)
	}
	return n
}

// descriptors is how many open files a process has.
func descriptors(pid int) int {
	entries, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "fd"))
	if err != nil {
		return 0
	}
	return len(entries)
}

// checkInside compares what there is with what there was when the daemon ran in
// the same way.
func (r *run) checkInside(was resources) {
	is := r.resources()
	for try := 0; is.over(was) != "" && try < 20; try++ { // what ended just now may not be gone yet
		time.Sleep(100 * time.Millisecond)
		is = r.resources()
	}
	if what := is.over(was); what != "" {
		r.problem("leak: %s", what)
	}
	r.summary.before, r.summary.after = was, is
}

// checkOutside does the same after everything was stopped.
func (r *run) checkOutside(was resources) {
	var what string
	for range 50 {
		is := ownResources()
		if what = is.over(was); what == "" {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	r.problem("left behind after the end: %s", what)
}

// over says what there is too much of.
func (n resources) over(was resources) string {
	if n.goroutines > was.goroutines+slackGoroutines {
		return fmt.Sprintf("%d goroutines, %d before", n.goroutines, was.goroutines)
	}
	for pid, count := range n.descriptors {
		if before := was.descriptors[pid]; before != 0 && count > before+slackDescriptors {
			return fmt.Sprintf("process %d has %d open files, %d before", pid, count, before)
		}
	}
	if n.memory > was.memory+slackMemory {
		return fmt.Sprintf("%d MB of private memory, %d MB before", n.memory>>20, was.memory>>20)
	}
	return ""
}
