// Package schedstat tells a process that waits for nobody from one that waits for
// the machine: how long its threads were ready to run and did not get a processor,
// and whether somebody has stopped it.
//
// What lives here: two looks at a process and what happened between them. What
// follows from it (a driver hangs, a stream stands still) is for who looks to say.
package schedstat

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Process is a look at a process. The zero value is one that is not there.
type Process struct {
	PID int

	at      time.Time
	threads map[int]thread
}

// thread is what proc(5) says of one.
type thread struct {
	state  byte          // of /proc/PID/task/TID/stat
	ran    time.Duration // first field of schedstat: on a processor
	waited time.Duration // second field: ready for one. A wait is added when it ends
}

// States of a thread.
const (
	ready   = 'R' // or running
	stopped = 'T' // by a signal
)

// proc is where proc(5) is mounted.
const proc = "/proc"

// Look looks at a process now. It reads two small files for each thread.
func Look(pid int) Process { return look(proc, pid, time.Now()) }

func look(root string, pid int, now time.Time) Process {
	p := Process{PID: pid, at: now, threads: map[int]thread{}}
	tasks := filepath.Join(root, strconv.Itoa(pid), "task")
	entries, _ := os.ReadDir(tasks)
	for _, e := range entries {
		id, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if t, ok := readThread(filepath.Join(tasks, e.Name())); ok {
			p.threads[id] = t
		}
	}
	return p
}

// readThread reads what a thread's folder says. A thread that has ended since the
// folder was listed says nothing.
func readThread(dir string) (t thread, ok bool) {
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return t, false
	}
	// The command's name, in parentheses, may hold anything.
	_, rest, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	if len(rest) == 0 {
		return t, false
	}
	t.state = rest[0]
	times, _ := os.ReadFile(filepath.Join(dir, "schedstat"))
	if f := bytes.Fields(times); len(f) >= 2 {
		t.ran, t.waited = nanoseconds(f[0]), nanoseconds(f[1])
	}
	return t, true
}

func nanoseconds(b []byte) time.Duration {
	n, _ := strconv.ParseInt(string(b), 10, 64)
	return time.Duration(n)
}

// Use is what happened to a process between two looks.
type Use struct {
	PID     int
	Over    time.Duration // between the looks
	Ran     time.Duration // on processors, all threads
	Waited  time.Duration // ready for a processor and without one, the thread that waited longest
	Stopped bool          // by a signal, at the second look
}

// Since is what happened since an earlier look at the same process.
func (p Process) Since(was Process) Use {
	u := Use{PID: p.PID, Over: p.at.Sub(was.at)}
	for id, t := range p.threads {
		before := was.threads[id] // none: it is new, and began with nothing
		ran, waited := t.ran-before.ran, t.waited-before.waited
		if t.state == ready && before.state == ready && ran == 0 && waited == 0 {
			waited = u.Over // it still waits
		}
		u.Ran += ran
		u.Waited = max(u.Waited, min(waited, u.Over))
		u.Stopped = u.Stopped || t.state == stopped
	}
	return u
}

// Starved tells whether the process lacked processors so much that what it did not
// do in that time says nothing about it: it was stopped, or a thread waited for half
// of the time or more.
func (u Use) Starved() bool { return u.Stopped || u.Waited > 0 && 2*u.Waited >= u.Over }

func (u Use) String() string {
	if u.Stopped {
		return fmt.Sprintf("process %d is stopped by a signal", u.PID)
	}
	return fmt.Sprintf("process %d waited %v of %v for a processor and ran %v", u.PID, short(u.Waited), short(u.Over), short(u.Ran))
}

func short(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
