package matrix

import (
	"fmt"
	"strconv"
	"strings"
)

// end is one end of a row's wire.
type end int

// Ends.
const (
	nic  end = iota // that is measured
	peer            // that it talks to
)

// netstackPorts are ports with a TCP/IP stack in nicd.
func netstackPorts(e end) string {
	return fmt.Sprintf("port \"netstack\" {\n    address = \"10.0.0.%d/24\"\n  }", 1+e)
}

// Config is the text of the config that a row is run with: the NIC, and a vmxnet3
// at the other end of the wire that merges what it receives and leaves cutting to
// its device, so that it is never what limits. Above both are netstack ports, and
// streams between them.
func (r *Row) Config() string {
	var b strings.Builder
	b.WriteString(r.interfaces(netstackPorts))
	from, to := "peer", "nic"
	if r.Direction == Send {
		from, to = to, from
	}
	for n := range r.Streams {
		fmt.Fprintf(&b, "stream \"s%d\" {\n  from = %q\n  to = %q\n}\n", n, from, to)
	}
	return b.String()
}

// interfaces is a config without streams, with the ports that port makes blocks of.
func (r *Row) interfaces(port func(end) string) string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("daemon {")
	p("  log_level = \"error\"")
	if r.Unsafe {
		p("  unsafe = true")
	}
	p("}")
	p("wire \"w0\" {}")
	for _, d := range []string{"vmxnet3", "e1000"} {
		p("driver %q {\n  mode = %q\n}", d, r.Mode)
	}
	r.nic(p, port(nic))
	p("interface \"peer\" {")
	p("  driver = \"vmxnet3\"\n  mtu = %d\n  rx_queues = %d\n  tx_queues = %d", r.MTU, min(r.Queues, 4), min(r.Queues, 4))
	p("  device \"sim\" {\n    model = \"vmxnet3\"\n    revision = 4\n    wire = \"w0\"\n  }")
	p("  %s\n}", port(peer))
	return b.String()
}

// nic writes the interface that is measured.
func (r *Row) nic(p func(string, ...any), port string) {
	driver := "e1000"
	if r.Device == "vmxnet3" {
		driver = "vmxnet3"
	}
	p("interface \"nic\" {")
	p("  driver = %q\n  mtu = %d\n  rx_queues = %d\n  tx_queues = %d\n  interrupts = %q\n  tx_handoff = %q",
		driver, r.MTU, r.Queues, r.Queues, r.Interrupts, r.TxHandoff)
	p("  device \"sim\" {\n    model = %q\n    wire = \"w0\"", r.Device)
	if r.Revision > 0 {
		p("    revision = %d", r.Revision)
	}
	p("  }")
	p("  features {\n    lro = %v\n  }", r.LRO != "none")
	p("  quirks {")
	if r.LRO != "none" {
		p("    lro-owner = %q", r.LRO)
	}
	for _, name := range r.quirkNames() {
		p("    %s = %s", name, literal(r.Quirks[name]))
	}
	p("  }")
	p("  %s\n}", port)
}

// literal writes a quirk's value as the config wants it.
func literal(value string) string {
	if _, err := strconv.Atoi(value); err == nil || value == "true" || value == "false" {
		return value
	}
	return strconv.Quote(value)
}
