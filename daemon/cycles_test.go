package daemon

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"nicd/port/pcap"
	"nicd/proto/adminpb"
)

// ownership is what this process has.
type ownership struct {
	files, goroutines, arenas int
	heap                      uint64
}

// owned does not look at resident memory: of that the race detector has most.
func owned(t *testing.T) ownership {
	t.Helper()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return ownership{openFiles(t), runtime.NumGoroutine(), bytes.Count(maps, []byte("memfd:")), m.HeapAlloc}
}

// slackOwned is for timers and pools, which come and go.
const slackOwned = 3

func (o ownership) over(was ownership, heap uint64) bool {
	return o.files > was.files+slackOwned || o.goroutines > was.goroutines+slackOwned || o.arenas > was.arenas || o.heap > was.heap+heap
}

// leavesAsMuch does something more often than the slack lets leave one thing each time,
// and has this process own no more afterwards than after some warming up, but for so much
// heap.
func leavesAsMuch(t *testing.T, cycles int, heap uint64, do func(n int)) {
	t.Helper()
	const warm = 2
	for n := range warm {
		do(n)
	}
	was := owned(t)
	for n := range cycles {
		do(warm + n)
	}
	is := owned(t)
	for look := 0; is.over(was, heap) && look < 50; look++ { // what has ended just now
		time.Sleep(20 * time.Millisecond)
		is = owned(t)
	}
	t.Logf("was %+v, is %+v", was, is)
	if is.over(was, heap) {
		t.Error("it grows")
	}
}

// streamHeap is by how much TCP's buffers may grow while streams run.
const streamHeap = 24 << 20

// TestCyclesOfSettings: queues that come and go, and captures, leave nothing.
func TestCyclesOfSettings(t *testing.T) {
	s := startStress(t, "in-process", 1)
	c, hangUp := s.client()
	defer hangUp()
	t.Run("queues", func(t *testing.T) {
		leavesAsMuch(t, 20, streamHeap, func(n int) {
			for _, name := range pairNames(0) {
				if _, err := s.daemon.Set(t.Context(), name, []Assignment{{"queues", fmt.Sprint(1 + n%2)}}, false); err != nil {
					t.Fatal(err)
				}
			}
		})
	})
	t.Run("captures", func(t *testing.T) {
		leavesAsMuch(t, 20, streamHeap, func(n int) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stream, err := c.Capture(ctx, &adminpb.CaptureRequest{Interface: "a0"})
			if err != nil {
				t.Fatal(err)
			}
			for range n % 3 {
				if _, err := stream.Recv(); err != nil {
					t.Fatal(err)
				}
			}
		})
		until(t, "nobody captures", 20*time.Second, func() bool {
			for point := range pcap.NumPoints {
				if s.daemon.find("a0").hub.Watched(point) {
					return false
				}
			}
			return true
		})
	})
	awaitData(t, s.daemon, 1<<18, streamNames(0)...)
	for _, problem := range s.daemon.Audit() {
		t.Error(problem)
	}
}

// TestCyclesOfAttachments: a daemon that starts and stops leaves nothing. With plugins
// TestStressPlugins says so.
func TestCyclesOfAttachments(t *testing.T) {
	leavesAsMuch(t, 8, 6<<20, func(int) {
		t.Run("cycle", func(t *testing.T) { // which stops it
			s := startStress(t, "in-process", 1)
			awaitData(t, s.daemon, 1, streamNames(0)...)
		})
	})
}

// TestCyclesOfDrivers: drivers that are loaded and unloaded, or refused, leave nothing.
func TestCyclesOfDrivers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nicd-driver-e1000")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "nicd/cmd/nicd-driver-e1000").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	noPlugin, err := exec.LookPath("true")
	if err != nil {
		t.Fatal(err)
	}
	c := newCatalogue(nil, zerolog.Nop())
	nobody := func(string) []string { return nil }
	leavesAsMuch(t, 5, 6<<20, func(n int) {
		if _, err := c.load(t.Context(), path, "", nobody); err != nil {
			t.Fatal(err)
		}
		if err := c.unload("e1000", nobody); err != nil {
			t.Fatal(err)
		}
		for refused, sum := range map[string]string{path: strings.Repeat("0", 64), noPlugin: ""} {
			if _, err := c.load(t.Context(), refused, sum, nobody); err == nil {
				t.Fatalf("%s with the sum %q was loaded", refused, sum)
			}
		}
	})
}
