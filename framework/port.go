package framework

// Port is what sits above an interface: a TAP device, a user-space TCP/IP stack,
// a bridge, a sink. It lives in nicd and survives its interface's driver.
type Port interface {
	// Attach gives the port its interface, before any traffic. The port may use
	// i until Close has returned.
	Attach(i Interface) error

	// Deliver hands over received packets of one queue, in order. The buffers
	// are the port's until it gives each back, once, with i.Release; b itself is
	// valid during the call only. There is one caller per queue at a time.
	Deliver(queue int, b *Batch)

	// TxReady says that a queue which Send found full has room again, or buffers
	// again if Alloc gave fewer than were asked for. It must not block.
	TxReady(queue int)

	// LinkChanged reports the link's state, and once after Attach.
	LinkChanged(Link)

	// Needs says what the port can take; the feature resolver asks.
	Needs() PortNeeds

	Close() error
}

// PortNeeds is what a port can take and give.
type PortNeeds struct {
	Name string // for reasons: "netstack", "forward"
	// Accepts is the set of features that the port can live with.
	Accepts Features
	// ExactSegments: a coalesced packet whose SegmentSize is unknown is of no
	// use to the port, because it sends packets on.
	ExactSegments bool
	// Promiscuous and AllMulticast: the port answers for more addresses than the
	// interface's own and broadcast; the device's filters have to let those pass.
	Promiscuous, AllMulticast bool
}

// SettingsFollower is a Port that shows its interface's settings to somebody
// else: the MTU and the address of a Linux interface, say.
type SettingsFollower interface {
	// SettingsChanged says that Interface.Settings gives other answers than
	// before. It is called after Attach only, by one goroutine at a time, and may
	// take as long as a system call does. An error says what could not follow: the
	// change is taken back, and SettingsChanged called again with what was before.
	SettingsChanged() error
}

// PortCounter is something that a port counts.
type PortCounter struct {
	Name  string // "port_kernel_refused"
	Unit  string // "packets"
	Doc   string
	Value uint64
	Bad   bool // a sign of trouble when it is not zero
}

// CountingPort is a Port with counters of its own.
type CountingPort interface {
	// Counters are totals, always the same ones in the same order. Any goroutine
	// may call it.
	Counters() []PortCounter
}

// Interface is what a port sees below it.
type Interface interface {
	Name() string
	Settings() Settings // in force now; Features tell what Send takes
	Queues() int        // transmit queues, at least one

	// Buffers is where packets lie.
	Buffers() *Buffers

	// Alloc takes up to len(dst) empty transmit buffers of a queue and returns
	// how many it got. They are the caller's until sent or given back.
	Alloc(queue int, dst []Buffer) int

	// Send queues the packets of b, in order, and returns how many it took. The
	// buffers of those are gone; the rest stay the caller's, and TxReady will
	// say when to try again. Any goroutine may call it; batches of one caller
	// stay in order.
	Send(queue int, b *Batch) int

	// Release gives back buffers that Deliver or Alloc handed out, to the queue
	// that they came from.
	Release(queue int, bufs []Buffer)
}
