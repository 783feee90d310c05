package soak

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"nicd/config"
	"nicd/daemon"
	"nicd/drivers/e1000"
	"nicd/drivers/vmxnet3"
	"nicd/framework"
	"nicd/internal/schedstat"
	"nicd/internal/testns"
	"nicd/proto/adminpb"
)

func bundled() []framework.Driver { return []framework.Driver{vmxnet3.New(), e1000.New()} }

// TestSoak is a short one. The race detector and a busy machine make everything
// slow, so a stall is a long one here.
func TestSoak(t *testing.T) { shortSoak(t, false) }

// TestSoakTAP is the same with the kernel's TCP.
func TestSoakTAP(t *testing.T) {
	testns.NeedTAP(t)
	shortSoak(t, true)
}

func shortSoak(t *testing.T, tap bool) {
	var out bytes.Buffer
	seed := rand.Uint64()
	err := Run(t.Context(), Options{
		Bundled: bundled(), Out: &out, Log: zerolog.Nop(), Seed: seed,
		Duration: 3 * time.Second, Interval: 150 * time.Millisecond, Stall: 8 * time.Second, InProcess: true, TAP: tap,
	})
	t.Logf("seed %d\n%s", seed, out.String())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "no stall, no connection lost") {
		t.Error("there is no verdict")
	}
}

// TestWatcher: a stream that moves is left alone, one that does not is reported,
// once for each time that it stands still for too long.
func TestWatcher(t *testing.T) {
	now := time.Unix(0, 0)
	bytes := [2]uint64{}
	asked := 0
	w := &watcher{
		limit: time.Second,
		look: func() []daemon.Progress {
			return []daemon.Progress{{Name: "a", Bytes: bytes[0]}, {Name: "b", Bytes: bytes[1]}}
		},
		pids: func() []int { asked++; return nil },
	}
	var found []string
	for range 250 {
		w.note(now)
		now = now.Add(10 * time.Millisecond)
		bytes[0]++
		found = append(found, w.problems()...)
	}
	if len(found) != 2 || !strings.Contains(found[0], "stream b stalled") || !strings.Contains(found[1], "for 2.") {
		t.Errorf("found %q", found)
	}
	if asked != 2 {
		t.Errorf("looked at processes %d times for 2 stalls", asked)
	}
	if w.streams[0].longest > 20*time.Millisecond || w.streams[1].longest < 2*time.Second {
		t.Errorf("%+v", w.streams)
	}
}

// TestWatcherOverslept: time in which the watcher itself was not let run is nobody's
// pause, and is told.
func TestWatcherOverslept(t *testing.T) {
	now := time.Unix(0, 0)
	w := &watcher{
		limit: time.Second,
		look:  func() []daemon.Progress { return []daemon.Progress{{Name: "a"}} },
		pids:  func() []int { return nil },
	}
	pass := func(looks int, asleep time.Duration) {
		for range looks {
			w.note(now)
			now = now.Add(asleep)
			w.slept(asleep)
		}
	}
	pass(50, sampling)
	pass(5, 30*time.Second)
	pass(40, sampling)
	if found := w.problems(); len(found) != 0 || w.blind != 5*30*time.Second {
		t.Errorf("found %q, blind for %v", found, w.blind)
	}
	pass(20, sampling)
	if found := w.problems(); len(found) != 1 {
		t.Errorf("found %q", found)
	}
}

// TestWatcherForgives: a stream that stands still because a process is stopped has not
// stalled, unless that goes on and on.
func TestWatcherForgives(t *testing.T) {
	sleeper := exec.Command("sleep", "1000")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sleeper.Process.Kill(); _ = sleeper.Wait() })
	var status syscall.WaitStatus
	if err := sleeper.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := syscall.Wait4(sleeper.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("%v, %v", status, err)
	}
	now := time.Unix(0, 0)
	w := &watcher{
		limit: time.Second,
		look:  func() []daemon.Progress { return []daemon.Progress{{Name: "a"}} },
		pids:  func() []int { return []int{sleeper.Process.Pid} },
	}
	pass := func(d time.Duration) {
		for end := now.Add(d); now.Before(end); now = now.Add(sampling) {
			w.note(now)
		}
	}
	pass(5 * time.Second)
	if found := w.problems(); len(found) != 0 || w.starved != 4 {
		t.Errorf("found %q, starved %d times", found, w.starved)
	}
	pass(6 * time.Second)
	if found := w.problems(); len(found) != 1 || !strings.Contains(found[0], "is stopped by a signal") {
		t.Errorf("found %q", found)
	}
}

// TestWorst: who was kept from running most is named.
func TestWorst(t *testing.T) {
	fine := schedstat.Use{PID: 1, Over: time.Second, Waited: 20 * time.Millisecond}
	starved := schedstat.Use{PID: 2, Over: time.Second, Waited: 900 * time.Millisecond}
	stopped := schedstat.Use{PID: 3, Over: time.Second, Stopped: true}
	for _, c := range []struct {
		uses []schedstat.Use
		want schedstat.Use
	}{
		{nil, schedstat.Use{}},
		{[]schedstat.Use{fine}, fine},
		{[]schedstat.Use{fine, starved, fine}, starved},
		{[]schedstat.Use{starved, stopped, fine}, stopped},
	} {
		if got := worst(c.uses); got != c.want {
			t.Errorf("got %v, want %v", got, c.want)
		}
	}
}

// TestLeaksAreSeen: too much of anything is said.
func TestLeaksAreSeen(t *testing.T) {
	was := resources{goroutines: 10, descriptors: map[int]int{1: 5, 2: 6}, memory: 100 << 20}
	for says, is := range map[string]resources{
		"":                              {goroutines: 12, descriptors: map[int]int{1: 5, 2: 6}, memory: 110 << 20},
		"20 goroutines, 10 before":      {goroutines: 20, descriptors: was.descriptors, memory: was.memory},
		"process 2 has 9 open files":    {goroutines: 10, descriptors: map[int]int{1: 5, 2: 9}, memory: was.memory},
		"200 MB of private memory, 100": {goroutines: 10, descriptors: was.descriptors, memory: 200 << 20},
	} {
		if got := is.over(was); !strings.Contains(got, says) || (got == "") != (says == "") {
			t.Errorf("got %q, want %q", got, says)
		}
	}
}

// TestPicksAreAllowed: whatever is drawn, in whatever order, is a change that the
// interface accepts; else a soak would be over for no reason.
func TestPicksAreAllowed(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	d := startDaemon(t, strings.ReplaceAll(topology, `"plugin"`, `"in-process"`))
	for range 300 {
		c := pick(random)
		for _, name := range c.interfaces {
			// Features only: these depend on each other, and a change of them costs
			// no restart.
			if k := c.kind(); k == "mtu" || k == "queues" {
				continue
			}
			if _, err := d.Set(t.Context(), name, c.settings, false); err != nil {
				t.Fatalf("%v: %v", c, err)
			}
		}
	}
}

func startDaemon(t *testing.T, text string) *daemon.Daemon {
	t.Helper()
	c, err := config.Parse("test.hcl", []byte(text), daemon.Vocabulary([]string{"vmxnet3", "e1000"}))
	if err != nil {
		t.Fatal(err)
	}
	d, err := daemon.Start(t.Context(), daemon.Options{
		Config: c, Bundled: bundled(), Socket: filepath.Join(t.TempDir(), "s"), Version: &adminpb.Version{}, Log: zerolog.Nop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Stop)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := d.AwaitStreams(ctx); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestOffAfterOn is test 3 of the matrix that this project began with (freebsd-net,
// February 2020): LRO turned off while a stream runs, after it was on, left that
// stream at zero for ever. Here it goes on each time, at every revision, both
// ways, whoever owns LRO.
func TestOffAfterOn(t *testing.T) {
	for _, revision := range []int{1, 2, 4} { // the shapes of what is merged
		t.Run(fmt.Sprint("revision ", revision), func(t *testing.T) {
			d := startDaemon(t, strings.ReplaceAll(pair, "REVISION", fmt.Sprint(revision)))
			for _, value := range []string{"off", "hardware", "off", "software", "off", "hybrid", "off", "on", "off"} {
				if _, err := d.Set(t.Context(), "vmx0", []daemon.Assignment{{Name: "lro", Value: value}}, false); err != nil {
					t.Fatal(err)
				}
				movesOn(t, d, value)
			}
			if p := d.Audit(); p != nil {
				t.Error(p)
			}
			d.StopStreams()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if err := d.Rest(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

// movesOn waits until each stream has moved some megabytes more.
func movesOn(t *testing.T, d *daemon.Daemon, after string) {
	t.Helper()
	before := d.Progress()
	deadline := time.Now().Add(20 * time.Second)
	for n := 0; n < len(before); {
		now := d.Progress()
		if now[n].Bytes > before[n].Bytes+1<<20 {
			n++
			continue
		}
		if time.Now().After(deadline) {
			t.Fatalf("lro=%s: stream %s has moved %d bytes since", after, now[n].Name, now[n].Bytes-before[n].Bytes)
		}
		time.Sleep(time.Millisecond)
	}
}

const pair = `
wire "w0" {}
driver "vmxnet3" { mode = "in-process" }
driver "e1000" { mode = "in-process" }
interface "vmx0" {
  driver = "vmxnet3"
  device "sim" {
    model    = "vmxnet3"
    revision = REVISION
    wire     = "w0"
  }
  port "netstack" { address = "10.0.0.1/24" }
}
interface "em0" {
  driver = "e1000"
  device "sim" {
    model = "82574L"
    wire  = "w0"
  }
  port "netstack" { address = "10.0.0.2/24" }
}
stream "there" {
  from = "vmx0"
  to   = "em0"
}
stream "back" {
  from = "em0"
  to   = "vmx0"
}
`
