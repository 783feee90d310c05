package daemon

// This file reads what processes cost, from getrusage(2) and proc(5), and where they
// may run, from sched_getaffinity(2).

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// userTicks is the unit of times in /proc/PID/stat: USER_HZ, which is 100 on
// every architecture that Go runs on.
const userTicks = 100

// ownCPU is the processor time that this process has used.
func ownCPU() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// processors are the numbers of those that this process, and so its plugins, may run
// on, in ascending order.
func processors() []int {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil
	}
	var list []int
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			list = append(list, cpu)
		}
	}
	return list
}

// ProcessCPU is the processor time that a process has used, in units of 10 ms, and
// 0 if it is gone. It may be any process.
func ProcessCPU(pid int) time.Duration {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	// The command's name, in parentheses, may hold anything; utime and stime are
	// the 12th and 13th field behind it.
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseUint(string(fields[11]), 10, 64)
	system, _ := strconv.ParseUint(string(fields[12]), 10, 64)
	return time.Duration(user+system) * time.Second / userTicks
}

// residentBytes is how much of a process's private memory is resident. Shared
// memory, the arenas, is counted by nicd once and not again by each plugin.
func residentBytes(pid int, withShared bool) uint64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(b)
	if len(fields) < 3 {
		return 0
	}
	resident, _ := strconv.ParseUint(string(fields[1]), 10, 64)
	shared, _ := strconv.ParseUint(string(fields[2]), 10, 64)
	if !withShared {
		resident -= min(shared, resident)
	}
	return resident * uint64(os.Getpagesize())
}

// privateBytes is how much memory a process has to itself: heap and stacks, without
// files and the arenas, whose size is fixed.
func privateBytes(pid int) uint64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(b, []byte("RssAnon:"))
	line, _, _ := bytes.Cut(rest, []byte("kB"))
	kilobytes, _ := strconv.ParseUint(string(bytes.TrimSpace(line)), 10, 64)
	return kilobytes << 10
}
