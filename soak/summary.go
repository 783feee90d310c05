package soak

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"nicd/proto/adminpb"
)

// summary is what a soak did and saw.
type summary struct {
	kinds         map[string]int // changes by what they were about
	effects       map[string]int // and by what they took
	total         int
	streams       []streamRecord
	blind         time.Duration // of the watcher's, which is in no stream's pauses
	starved       int           // of the watcher's
	retransmits   []uint64
	status        *adminpb.StatusReply
	before, after resources
}

func newSummary() *summary {
	return &summary{kinds: map[string]int{}, effects: map[string]int{}}
}

func (s *summary) count(c change, effect string) {
	s.total++
	s.kinds[c.kind()]++
	s.effects[effect]++
}

func (s *summary) print(w io.Writer, took time.Duration) {
	fmt.Fprintf(w, "\n%d changes in %v\n", s.total, took.Round(time.Millisecond))
	for _, m := range []map[string]int{s.kinds, s.effects} {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			fmt.Fprintf(w, "  %-12s %d\n", name, m[name])
		}
	}
	for n, r := range s.streams {
		fmt.Fprintf(w, "stream %-11s %8.1f MB, longest pause %v", r.name, float64(r.bytes)/1e6, r.longest.Round(time.Millisecond))
		if n < len(s.retransmits) {
			fmt.Fprintf(w, ", %d retransmits by its sender", s.retransmits[n])
		}
		fmt.Fprintln(w)
	}
	if s.starved > 0 {
		fmt.Fprintf(w, "%d times a stream stood still for too long and a process was stopped or waited for a processor\n", s.starved)
	}
	if s.blind > 0 {
		fmt.Fprintf(w, "for %v of that the machine did not let the soak itself look\n", s.blind.Round(time.Millisecond))
	}
	if s.status != nil {
		for _, i := range s.status.Interfaces {
			fmt.Fprintf(w, "interface %-7s %10d packets in, %10d out, %6d dropped, counters add up\n", i.Name, i.RxPackets, i.TxPackets, i.Drops)
		}
	}
	if s.after.descriptors != nil {
		fmt.Fprintf(w, "goroutines %d, %d before; %d MB of private memory, %d MB when warm\n", s.after.goroutines, s.before.goroutines, s.after.memory>>20, s.before.memory>>20)
	}
}
