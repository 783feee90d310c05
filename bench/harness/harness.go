// Package harness runs one engine over all traces and prints one line for each: the name of the trace, whether the
// checksum was verified by the engine, nanoseconds per packet (the median and the best pass), and the number of
// outputs of a pass. The command run reads these lines.
package harness

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"nicd/bench/trace"
)

// Engine is one engine under test, loaded with one trace.
type Engine interface {
	// Reset puts everything back as it was before the last pass. It is not timed.
	Reset()
	// Batch gives packets from to to-1 to the engine and has it flush. It returns the number of outputs. It is timed.
	Batch(from, to int) int
}

// Preparer is an engine that needs something done before each batch, outside of the time.
type Preparer interface {
	Prepare(from, to int)
}

// Each trace is run Warm times and then Passes times, which are timed.
const (
	Warm   = 4
	Passes = 21
)

// Main runs the engine that open returns for all traces that it supports. open returns nil for those it does not.
func Main(open func(s trace.Spec, frames [][]byte, verify bool) Engine) {
	runtime.LockOSThread()
	debug.SetGCPercent(-1)
	for _, s := range trace.Specs() {
		for _, verify := range []bool{false, true} {
			e := open(s, s.Frames(), verify)
			if e == nil {
				continue
			}
			report(s, verify, e)
			e = nil
			runtime.GC()
		}
	}
}

func report(s trace.Spec, verify bool, e Engine) {
	times := make([]time.Duration, Passes)
	outputs := 0
	for range Warm {
		e.Reset()
		pass(s, e)
	}
	for i := range times {
		e.Reset()
		if i%8 == 0 {
			runtime.GC()
		}
		times[i], outputs = pass(s, e)
	}
	slices.Sort(times)
	per := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / float64(s.N) }
	fmt.Fprintf(os.Stdout, "%v %v %.2f %.2f %d\n", s, verify, per(times[len(times)/2]), per(times[0]), outputs)
}

// pass runs all batches once.
func pass(s trace.Spec, e Engine) (total time.Duration, outputs int) {
	prepare, ok := e.(Preparer)
	if !ok {
		start := time.Now()
		for i := 0; i < s.N; i += trace.Batch {
			outputs += e.Batch(i, i+trace.Batch)
		}
		return time.Since(start), outputs
	}
	for i := 0; i < s.N; i += trace.Batch {
		prepare.Prepare(i, i+trace.Batch)
		start := time.Now()
		outputs += e.Batch(i, i+trace.Batch)
		total += time.Since(start)
	}
	return total, outputs
}
