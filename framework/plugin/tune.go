package plugin

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"

	"golang.org/x/sys/unix"
)

// A plugin's heap is small, because packets live outside of it: collect early
// and keep what is resident low.
const (
	gcPercent   = 50
	memoryLimit = 64 << 20
)

// tune sizes the runtime for so many queue pairs, whose tasks poll all the time
// or sleep. What the environment says wins.
func tune(queues int, polling bool) {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(processors(runtime.NumCPU(), queues, polling))
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
}

// processors is how many of a machine's processors the plugin uses at a time: one
// for each queue's tasks and one for control, but no more than half of what there
// is. nicd and the other plugins wait for the rest, and an idle processor of the
// Go runtime that is woken to find nothing to do is one that they do not have
// (two processors, quickstart: 8 % less processor time a gigabyte with one than
// with two). Tasks that poll never share a processor.
func processors(cpus, queues int, polling bool) int {
	if polling {
		return max(2, min(cpus, queues+1))
	}
	return max(1, min(cpus/2, queues+1))
}

// batch asks the kernel to let others finish what they do before this process
// runs (SCHED_BATCH, sched(7)): when it is woken it waits until a processor is
// free or another's time is up, and finds a batch of packets, where it would else
// take the processor from whoever is about to bring the second one. With a
// processor to spare it makes no difference. Threads inherit it from who makes
// them. (Two processors, quickstart: a third of the context switches, 10 to 15 %
// more throughput.)
//
// It is for devices in software, which wait. Hardware fills its ring in the
// meantime, and drops.
func batch() error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		if err := batchThread(id); err != nil && err != unix.ESRCH { // it may have ended
			return fmt.Errorf("SCHED_BATCH: %w", err)
		}
	}
	return nil
}

// batchThread leaves a thread alone that an operator gave another class.
func batchThread(id int) error {
	attr, err := unix.SchedGetAttr(id, 0)
	if err != nil || attr.Policy != unix.SCHED_NORMAL {
		return err
	}
	attr.Policy = unix.SCHED_BATCH
	return unix.SchedSetAttr(id, attr, 0)
}
