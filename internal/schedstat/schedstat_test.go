package schedstat

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// write makes a thread of process 7 below root.
func write(t *testing.T, root, id, stat, schedstat string) {
	t.Helper()
	dir := filepath.Join(root, "7", "task", id)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"stat": stat, "schedstat": schedstat} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUse: what the files of two moments say of the time between.
func TestUse(t *testing.T) {
	const ms = time.Millisecond
	type moment struct{ stat, schedstat string }
	for _, c := range []struct {
		name    string
		was, is moment
		want    Use
		starved bool
	}{
		{"asleep", moment{"7 (a b) S 1", "1000000 2000000 3\n"}, moment{"7 (a b) S 1", "1000000 2000000 3\n"}, Use{}, false},
		{"busy", moment{"7 (a) R 1", "0 0 0"}, moment{"7 (a) R 1", "90000000 10000000 9"}, Use{Ran: 90 * ms, Waited: 10 * ms}, false},
		{"waited", moment{"7 (a) R 1", "5 0 0"}, moment{"7 (a) S 1", "1000005 60000000 9"}, Use{Ran: ms, Waited: 60 * ms}, true},
		{"waits", moment{"7 (a) R 1", "5 6 7"}, moment{"7 (a) R 1", "5 6 7"}, Use{Waited: 100 * ms}, true},
		{"came to wait", moment{"7 (a) S 1", "5 6 7"}, moment{"7 (a) R 1", "5 6 7"}, Use{}, false},
		{"a wait that began before", moment{"7 (a) R 1", "0 0 0"}, moment{"7 (a) S 1", "0 900000000 1"}, Use{Waited: 100 * ms}, true},
		{"a name like a state", moment{"7 () T (R) S 1", "0 0 0"}, moment{"7 () T (R) S 1", "0 0 0"}, Use{}, false},
		{"stopped", moment{"7 (a) S 1", "0 0 0"}, moment{"7 (a) T 1", "0 0 0"}, Use{Stopped: true}, true},
		{"no schedstat", moment{"7 (a) S 1", ""}, moment{"7 (a) S 1", ""}, Use{}, false},
		{"nonsense", moment{"7", "x"}, moment{"", "y z"}, Use{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			root, now := t.TempDir(), time.Now()
			write(t, root, "7", c.was.stat, c.was.schedstat)
			was := look(root, 7, now)
			write(t, root, "7", c.is.stat, c.is.schedstat)
			c.want.PID, c.want.Over = 7, 100*ms
			if got := look(root, 7, now.Add(100*ms)).Since(was); got != c.want || got.Starved() != c.starved {
				t.Errorf("%+v, starved: %v; want %+v", got, got.Starved(), c.want)
			}
		})
	}
}

// TestThreads: times add up over threads, the longest wait counts, and threads come
// and go.
func TestThreads(t *testing.T) {
	root, now := t.TempDir(), time.Now()
	write(t, root, "7", "7 (a) S 1", "1000000 1000000 1")
	write(t, root, "8", "8 (a) S 1", "1000000 1000000 1")
	was := look(root, 7, now)
	if err := os.RemoveAll(filepath.Join(root, "7", "task", "8")); err != nil {
		t.Fatal(err)
	}
	write(t, root, "7", "7 (a) S 1", "3000000 2000000 1")
	write(t, root, "9", "9 (a) S 1", "4000000 5000000 1")
	u := look(root, 7, now.Add(time.Second)).Since(was)
	if u.Ran != 6*time.Millisecond || u.Waited != 5*time.Millisecond || u.Starved() {
		t.Errorf("%+v", u)
	}
	if gone := look(root, 99, now).Since(Process{}); gone.Ran != 0 || gone.Starved() {
		t.Errorf("a process that is not there: %+v", gone)
	}
}

// TestLook is about real processes: this one runs, a stopped one is said to be.
func TestLook(t *testing.T) {
	was := Look(os.Getpid())
	var u Use
	for u.Ran == 0 { // until the kernel's next count
		u = Look(os.Getpid()).Since(was)
	}
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
	if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	was = Look(child.Process.Pid)
	for !u.Stopped { // the signal is on its way
		u = Look(child.Process.Pid).Since(was)
	}
	if !u.Starved() || !strings.Contains(u.String(), "stopped by a signal") {
		t.Errorf("%+v: %v", u, u)
	}
}
