package ring

// Flight is the bookkeeping of transmit packets that are with the device. Not
// every packet asks for a completion, so packets are grouped by the next one
// that does: when its last descriptor is reported, all of the group are
// finished.
//
// After each packet put: Add. When a descriptor is reported: either compare it
// with Oldest and call Retire, or hand the number of descriptors that are
// finished to RetireThrough; then release as many descriptors as was answered.
// Completed hands out the packets.
type Flight struct {
	reports []report // a FIFO, its live part from head to tail
	head    uint32
	tail    uint32
	used    uint32
	open    report // packets since the last one that asked for a completion
	done    int
}

// report is a group of packets that one completion finishes.
type report struct {
	last           uint32 // index of the descriptor that is reported
	packets, descs uint32
}

// NewFlight makes the bookkeeping for a ring of so many descriptors.
func NewFlight(descriptors int) *Flight {
	return &Flight{reports: make([]report, max(descriptors, 2))}
}

// Add records a packet of descs descriptors, the last of which is at index last
// and asks for a completion if reports is set. A packet has at least one
// descriptor of its own; what precedes it in the ring for its sake, such as a
// context, counts as its own.
func (f *Flight) Add(last uint32, descs int, reports bool) {
	f.open.packets++
	f.open.descs += uint32(descs)
	if !reports {
		return
	}
	if int(f.used) == len(f.reports) {
		panic("ring: more packets in flight than the ring has descriptors")
	}
	f.open.last = last
	f.reports[f.tail] = f.open
	f.open = report{}
	f.used++
	f.tail = f.next(f.tail)
}

func (f *Flight) next(i uint32) uint32 {
	if i++; int(i) < len(f.reports) {
		return i
	}
	return 0
}

// Oldest is the index of the next descriptor to be reported, if any packet in
// flight asked for it.
func (f *Flight) Oldest() (last uint32, ok bool) {
	if f.used == 0 {
		return 0, false
	}
	return f.reports[f.head].last, true
}

// Retire says that Oldest was reported. It returns how many descriptors, oldest
// first, are to be released.
func (f *Flight) Retire() (descs int) {
	if f.used == 0 {
		return 0
	}
	r := f.reports[f.head]
	f.used--
	f.head = f.next(f.head)
	f.done += int(r.packets)
	return int(r.descs)
}

// RetireThrough retires all reports that lie within the n oldest descriptors in
// flight: n is [Command.Through] of a reported index. It returns how many
// descriptors are to be released, at most n: those of packets whose report is
// still to come stay.
func (f *Flight) RetireThrough(n int) (descs int) {
	for f.used > 0 && descs+int(f.reports[f.head].descs) <= n {
		descs += f.Retire()
	}
	return descs
}

// Ready is how many finished packets Completed has not handed out.
func (f *Flight) Ready() int { return f.done }

// Completed hands out at most max finished packets, oldest first, as a number.
func (f *Flight) Completed(max int) int {
	n := min(max, f.done)
	f.done -= n
	return n
}
