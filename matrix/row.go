package matrix

import (
	"fmt"
	"slices"
	"strings"

	"nicd/config"
)

// Row is one way to run a NIC, to be measured.
type Row struct {
	ID    string `json:"id"`
	Group string `json:"group"`
	// Base is the ID of the row that this one is compared with: the same with LRO
	// off, where LRO is what the row is about. "" is itself.
	Base string `json:"base,omitempty"`
	Why  string `json:"why"` // what the row is there for, one sentence

	Device     string            `json:"device"` // "vmxnet3" or "82574L"
	Revision   int               `json:"revision,omitempty"`
	Mode       string            `json:"mode"`      // "plugin" or "in-process"
	Direction  string            `json:"direction"` // Receive or Send, as the NIC sees it
	LRO        string            `json:"lro"`       // its owner: none, software, hardware-only, hybrid
	Toggles    []string          `json:"toggles,omitempty"`
	Under      bool              `json:"under,omitempty"` // the toggles are repeated while it is measured
	MTU        int               `json:"mtu"`
	Queues     int               `json:"queues"`
	Streams    int               `json:"streams"`
	Interrupts string            `json:"interrupts"` // "msi-x", "msi" or "intx"
	TxHandoff  string            `json:"tx_handoff"` // "abdicate" or "inline"
	Quirks     map[string]string `json:"quirks,omitempty"`
	Unsafe     bool              `json:"unsafe,omitempty"`

	// Expect is what has to come out, or the matrix fails.
	Expect Expectation `json:"expect"`
}

// Expectation is what has to come of a row. All but Refused also have to end with
// counters that add up.
type Expectation string

// Expectations.
const (
	// Moves: data arrives until the end.
	Moves Expectation = "moves"
	// Collapses: a negative control. At most collapseRatio of its base.
	Collapses Expectation = "collapses"
	// Refused: nicd does not start that way, and says why.
	Refused Expectation = "refused"
)

// collapseRatio is what is left at most of a row's base when it is said to have
// collapsed. Nobody needs a threshold to see it: it is one part in hundreds.
const collapseRatio = 0.25

// Directions.
const (
	Receive = "receive"
	Send    = "send"
)

// Rows are the matrix, in the order in which it is run and drawn.
func Rows() []Row {
	var all []Row
	for _, group := range []func() []Row{february2020, revisions, intel, jumbo, queues, interrupts, handoff, modes, toggled, controls} {
		all = append(all, group()...)
	}
	return all
}

// row fills in what most rows have in common.
func row(r Row) Row {
	set := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	set(&r.Device, "vmxnet3")
	set(&r.Mode, "plugin")
	set(&r.Direction, Receive)
	set(&r.LRO, "none")
	set(&r.Interrupts, "msi-x")
	set(&r.TxHandoff, string(config.Abdicate))
	set((*string)(&r.Expect), string(Moves))
	for _, n := range []*int{&r.Queues, &r.Streams} {
		*n = max(*n, 1)
	}
	if r.MTU == 0 {
		r.MTU = 1500
	}
	if r.Device == "vmxnet3" && r.Revision == 0 {
		r.Revision = 3
	}
	return r
}

// group makes rows of one group, the first of which is what the others are
// compared with, unless they say otherwise.
func group(name string, rows ...Row) []Row {
	for i := range rows {
		rows[i] = row(rows[i])
		rows[i].Group = name
		if rows[i].Base == "" && i > 0 {
			rows[i].Base = rows[0].ID
		}
	}
	return rows
}

func february2020() []Row {
	return group("freebsd-net, February 2020: one queue, MSI",
		Row{ID: "2020-1", Mode: "in-process", Interrupts: "msi", Why: "Tests 1 and 6: receive, LRO off, senders abdicate."},
		Row{ID: "2020-5", Mode: "in-process", Interrupts: "msi", TxHandoff: "inline", Why: "Test 5: the same, and who sends gives packets to the device."},
		Row{ID: "2020-2", Mode: "in-process", Interrupts: "msi", LRO: "hardware-only", Why: "Tests 2 and 7: receive, LRO on. iflib got a hundredth of test 5 here."},
		Row{ID: "2020-3", Mode: "in-process", Interrupts: "msi", LRO: "hardware-only", Toggles: []string{"off"},
			Why: "Test 3: receive, LRO turned off after it was on. The old driver got zero until the end."},
		Row{ID: "2020-8", Mode: "in-process", Interrupts: "msi", Direction: Send, Base: "2020-8", Why: "Test 8: send, LRO off."},
		Row{ID: "2020-4", Mode: "in-process", Interrupts: "msi", Direction: Send, LRO: "hardware-only", Base: "2020-8", Why: "Test 4: send, LRO on."},
	)
}

func revisions() (all []Row) {
	for _, revision := range []int{1, 2, 4} {
		id := fmt.Sprintf("r%d-", revision)
		rows := []Row{{ID: id + "none", Why: "LRO off."}}
		for _, owner := range []string{"software", "hardware-only", "hybrid"} {
			rows = append(rows, Row{ID: id + owner, LRO: owner, Why: owners[owner]})
		}
		for i := range rows {
			rows[i].Revision, rows[i].Queues = revision, 4
		}
		all = append(all, group(fmt.Sprintf("vmxnet3 revision %d, 4 queues, MSI-X, plugin", revision), rows...)...)
	}
	return all
}

var owners = map[string]string{
	"software":      "The framework merges, the device does not.",
	"hardware-only": "The device merges; no engine exists. What the driver declares.",
	"hybrid":        "The device merges, the engine what it left.",
}

func intel() []Row {
	return group("82574L, 2 queues, MSI-X, plugin",
		Row{ID: "82574L-none", Device: "82574L", Queues: 2, Why: "LRO off."},
		Row{ID: "82574L-software", Device: "82574L", Queues: 2, LRO: "software", Why: "The framework merges. What a device that can't merge gets."},
		Row{ID: "82574L-send", Device: "82574L", Queues: 2, Direction: Send, Base: "82574L-send", Why: "Send, with TSO."},
	)
}

func jumbo() []Row {
	rows := group("MTU 9000",
		Row{ID: "jumbo-none", MTU: 9000, Queues: 4, Why: "vmxnet3, LRO off: frames over several buffers."},
		Row{ID: "jumbo-hardware", MTU: 9000, Queues: 4, LRO: "hardware-only", Why: "vmxnet3, the device merges."},
		Row{ID: "jumbo-82574L", MTU: 9000, Queues: 2, Device: "82574L", Base: "jumbo-82574L", Why: "82574L, LRO off."},
		Row{ID: "jumbo-82574L-sw", MTU: 9000, Queues: 2, Device: "82574L", LRO: "software", Base: "jumbo-82574L", Why: "82574L, the framework merges."},
	)
	return rows
}

func queues() (rows []Row) {
	for _, n := range []int{1, 2, 4, 8} {
		rows = append(rows,
			Row{ID: fmt.Sprintf("q%d-none", n), Queues: n, Streams: 8, Base: fmt.Sprintf("q%d-none", n), Why: queueCount(n) + ", LRO off."},
			Row{ID: fmt.Sprintf("q%d-hardware", n), Queues: n, Streams: 8, LRO: "hardware-only", Base: fmt.Sprintf("q%d-none", n), Why: queueCount(n) + ", the device merges."})
	}
	return group("queues: 8 streams", rows...)
}

func queueCount(n int) string {
	if n == 1 {
		return "1 queue"
	}
	return fmt.Sprintf("%d queues", n)
}

func interrupts() []Row {
	return group("kinds of interrupt, 2 queues, the device merges",
		Row{ID: "msi-x", LRO: "hardware-only", Queues: 2, Interrupts: "msi-x", Base: "msi-x", Why: "A vector for each pair of queues and one for the device."},
		Row{ID: "msi", LRO: "hardware-only", Queues: 2, Interrupts: "msi", Base: "msi-x", Why: "One vector for all; it masks itself."},
		Row{ID: "intx", LRO: "hardware-only", Queues: 2, Interrupts: "intx", Base: "msi-x", Why: "A level-triggered line, acknowledged by reading."},
	)
}

func handoff() (rows []Row) {
	pair := func(id, what string, r Row) {
		r.Mode, r.Queues, r.Base = "in-process", 4, id+"-inline"
		r.ID, r.TxHandoff, r.Why = id+"-inline", "inline", what+", a sender that finds the queue's task asleep gives packets to the device."
		rows = append(rows, r)
		r.ID, r.TxHandoff, r.Why = id+"-abdicate", "abdicate", what+", senders leave packets to the queue's task."
		rows = append(rows, r)
	}
	pair("send", "1 stream", Row{Direction: Send})
	pair("send-8", "8 streams", Row{Direction: Send, Streams: 8})
	pair("acknowledge", "Receive", Row{LRO: "hardware-only"})
	return group("transmit hand-off, 4 queues, built in", rows...)
}

func modes() []Row {
	return group("plugin or built in, 4 queues",
		Row{ID: "built-in-none", Mode: "in-process", Queues: 4, Why: "LRO off, driver in nicd."},
		Row{ID: "plugin-none", Queues: 4, Why: "LRO off, driver in a process of its own."},
		Row{ID: "built-in-hardware", Mode: "in-process", Queues: 4, LRO: "hardware-only", Why: "The device merges, driver in nicd."},
		Row{ID: "plugin-hardware", Queues: 4, LRO: "hardware-only", Why: "The device merges, driver in a process of its own."},
	)
}

func toggled() []Row {
	return group("LRO changed while the streams run, 4 queues",
		Row{ID: "toggle-none", Queues: 4, Why: "LRO off all along, to compare with."},
		Row{ID: "toggle-off", Queues: 4, LRO: "hardware-only", Toggles: []string{"off"}, Why: "Off after on, measured while off."},
		Row{ID: "toggle-on", Queues: 4, LRO: "none", Toggles: []string{"hardware"}, Why: "On after off, measured while on."},
		Row{ID: "toggle-owners", Queues: 4, LRO: "hardware-only", Toggles: []string{"software", "hybrid", "hardware"}, Why: "All owners in turn, measured with the first."},
		Row{ID: "toggle-under-way", Queues: 4, LRO: "hardware-only", Toggles: []string{"off", "on"}, Under: true, Why: "Off and on, again and again, while it is measured."},
	)
}

// controls are the negative controls: what must collapse, and beside each the same
// without the word that it takes, which must be refused.
func controls() []Row {
	rows := []Row{
		{ID: "control-none", Why: "LRO off."},
		{ID: "as-declared", LRO: "hardware-only", Why: "The device merges, and the framework does as it should."},
	}
	for _, c := range []struct {
		id     string
		quirks map[string]string
		why    string
	}{
		{"first-verdict", map[string]string{"metadata-on": "first"},
			"The checksum verdict is taken from a packet's first completion instead of the last (FreeBSD D23949)."},
		{"merged-twice", map[string]string{"unsafe-forget-coalesced": "true"},
			"The software engine gets packets that the device has merged, and what the device said of them is thrown away (iflib, test 7)."},
		{"starved", map[string]string{"unsafe-rx-refill-cap": "8"},
			"The device never has more than 8 buffers; the longest packet takes 17."},
	} {
		rows = append(rows,
			Row{ID: c.id, LRO: "hardware-only", Quirks: c.quirks, Unsafe: true, Expect: Collapses, Why: c.why},
			Row{ID: c.id + "-refused", LRO: "hardware-only", Quirks: c.quirks, Expect: Refused, Why: "The same without unsafe = true in the daemon block."})
	}
	return group("negative controls: these must collapse, or nobody should believe the rest", rows...)
}

// title is the row in words.
func (r *Row) title() string {
	device := r.Device
	if r.Revision > 0 {
		device = fmt.Sprintf("%s r%d", device, r.Revision)
	}
	lro := r.LRO
	if len(r.Toggles) > 0 {
		lro += " then " + strings.Join(r.Toggles, ", ")
		if r.Under {
			lro += " ..."
		}
	}
	parts := []string{device, r.Direction, "lro " + lro, fmt.Sprint("mtu ", r.MTU), fmt.Sprintf("%dq", r.Queues), r.Interrupts, r.Mode}
	if r.TxHandoff != string(config.Abdicate) {
		parts = append(parts, r.TxHandoff)
	}
	if r.Streams > 1 {
		parts = append(parts, fmt.Sprint(r.Streams, " streams"))
	}
	for _, name := range r.quirkNames() {
		parts = append(parts, name+"="+r.Quirks[name])
	}
	return strings.Join(parts, ", ")
}

// quirkNames are the row's quirks, in order.
func (r *Row) quirkNames() []string {
	var names []string
	for n := range r.Quirks {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Select returns the rows whose ID begins with one of the prefixes, and those that
// they are compared with. Without prefixes that is all.
func Select(rows []Row, prefixes []string) []Row {
	if len(prefixes) == 0 {
		return rows
	}
	wanted := map[string]bool{}
	for i := range rows {
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(rows[i].ID, p) }) {
			wanted[rows[i].ID], wanted[rows[i].base()] = true, true
		}
	}
	return slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return !wanted[r.ID] })
}
