// Package console is how nicd speaks to a person or a script: the admin API's
// messages as tables and as JSON, and the live table of `nicd run`. It asks
// nobody anything; what it prints it is given.
package console

import (
	"fmt"
	"io"
	"strings"
	"time"

	"nicd/proto/adminpb"
)

// Status prints a daemon at a glance.
func Status(w io.Writer, s *adminpb.StatusReply) {
	fmt.Fprintf(w, "nicd %s, pid %d, up %s, %.1f CPU seconds, %s resident\n\n",
		s.Version.GetVersion(), s.Pid, (time.Duration(s.UptimeSeconds) * time.Second), s.CpuSeconds, bytesText(s.ResidentBytes))
	t := newTable("INTERFACE", "STATE", "LINK", "DRIVER", ">PID", "DEVICE", "PORT", "LRO", "ADDRESS", ">DROPS")
	for _, i := range s.Interfaces {
		t.row(i.Name, i.State, linkText(i.Link), i.Driver, i.Pid, i.Device, i.Port, i.LroOwner, orDash(strings.Join(i.Addresses, " ")), i.Drops)
	}
	t.print(w, nil)
	reasons(w, s)
	if len(s.Streams) == 0 {
		return
	}
	fmt.Fprintln(w)
	t = newTable("STREAM", "FROM", "TO", "STATE", ">RECEIVED", ">RETRANSMITS")
	for _, r := range s.Streams {
		t.row(r.Name, r.From, r.To, r.State, bytesText(r.Bytes), r.Retransmits)
	}
	t.print(w, nil)
}

func reasons(w io.Writer, s *adminpb.StatusReply) {
	for _, i := range s.Interfaces {
		if i.StateReason != "" {
			fmt.Fprintf(w, "%s: %s: %s\n", i.Name, i.State, i.StateReason)
		}
	}
	for _, r := range s.Streams {
		if r.StateReason != "" {
			fmt.Fprintf(w, "stream %s: %s: %s\n", r.Name, r.State, r.StateReason)
		}
	}
}

// Interface prints all about an interface but its counters.
func Interface(w io.Writer, d *adminpb.InterfaceDetail) {
	i := d.Interface
	fmt.Fprintf(w, "%s: %s", i.Name, i.State)
	if i.StateReason != "" {
		fmt.Fprintf(w, " (%s)", i.StateReason)
	}
	fmt.Fprintf(w, "\n  device      %s: %s revision %d%s\n", i.Device, d.Model, d.Revision, inParentheses(d.DeviceMode))
	fmt.Fprintf(w, "  driver      %s, %s, pid %d, generation %d\n", i.Driver, i.Mode, i.Pid, i.Generation)
	fmt.Fprintf(w, "  link        %s\n", linkText(i.Link))
	fmt.Fprintf(w, "  address     %s, MTU %d\n", i.Mac, i.Mtu)
	fmt.Fprintf(w, "  port        %s\n", strings.Join(append([]string{i.Port}, i.Addresses...), " "))
	fmt.Fprintf(w, "  LRO owner   %s\n", i.LroOwner)
	fmt.Fprintf(w, "  interrupts  %s\n", d.Interrupts)
	fmt.Fprintf(w, "  polling     at most %d packets a poll, idle queues looked at for %s, promiscuous %s\n", d.RxBudget, d.Spin, onOff(d.Promiscuous))
	fmt.Fprintf(w, "  transmit    %s\n", handoffText(d.TxHandoff))
	fmt.Fprintf(w, "  buffers     %d of %d bytes, arena %s\n\n", d.Buffers, d.BufferSize, bytesText(d.ArenaBytes))

	t := newTable("FEATURE", "STATE", "BECAUSE")
	for _, f := range d.Features {
		t.row(f.Name, f.State, f.Reason)
	}
	t.print(w, nil)
	fmt.Fprintln(w)
	t = newTable("QUEUE", ">DESCRIPTORS", ">VECTOR", "CPU")
	for _, q := range d.Queues {
		vector := "-"
		if q.Vector >= 0 {
			vector = fmt.Sprint(q.Vector)
		}
		t.row(fmt.Sprintf("%s %d", q.Kind, q.Index), q.Descriptors, vector, q.Cpu)
	}
	t.print(w, nil)
	fmt.Fprintln(w)
	t = newTable("QUIRK", "VALUE", "LEVEL", "BECAUSE")
	for _, q := range d.Quirks {
		t.row(q.Name, q.Value, q.Level, q.Because)
	}
	t.print(w, nil)
}

// Explain prints the chain of reasons behind a feature's state.
func Explain(w io.Writer, e *adminpb.ExplainReply) {
	fmt.Fprintf(w, "%s of %s is %s\n", e.Feature, e.Interface, e.State)
	for n, r := range e.Reasons {
		fmt.Fprintf(w, "  %d. %s\n", n+1, r)
	}
}

// Drivers prints the drivers that a daemon knows.
func Drivers(w io.Writer, list []*adminpb.Driver) {
	t := newTable("DRIVER", "VERSION", "SOURCE", "DEVICES", "USED BY")
	for _, d := range list {
		var ids []string
		for _, id := range d.Devices {
			ids = append(ids, fmt.Sprintf("%04x:%04x", id.Vendor, id.Device))
		}
		t.row(d.Name, d.Version, d.Source, strings.Join(ids, " "), orDash(strings.Join(d.Interfaces, " ")))
	}
	t.print(w, nil)
}

// handoffText says who gives packets to the device.
func handoffText(handoff string) string {
	if handoff == "inline" {
		return "inline: by who sends, if the queue's task is asleep"
	}
	return handoff + ": by the queue's task"
}

// orDash is what stands in a column that has nothing to say.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Driver prints one driver, just loaded.
func Driver(w io.Writer, d *adminpb.Driver) {
	fmt.Fprintf(w, "driver %s %s from %s\n  protocol %d\n", d.Name, d.Version, d.Source, d.Protocol)
	if d.Sha256 != "" {
		fmt.Fprintf(w, "  sha256   %s\n", d.Sha256)
	}
	for _, id := range d.Devices {
		present := "none here"
		if len(id.Present) > 0 {
			present = strings.Join(id.Present, ", ")
		}
		fmt.Fprintf(w, "  drives   %04x:%04x %s: %s\n", id.Vendor, id.Device, id.Name, present)
	}
}

// Quirks prints the registry.
func Quirks(w io.Writer, list []*adminpb.QuirkInfo) {
	for n, q := range list {
		if n > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s = %s, default %s%s%s\n  %s\n  [%s]\n", q.Name, q.Type, q.Default, forDriver(q.Driver), care(q), q.Meaning, q.Reference)
	}
}

// care is what somebody who sets a quirk has to know beforehand.
func care(q *adminpb.QuirkInfo) string {
	text := ""
	if !q.Live {
		text += "; takes a restart of the device"
	}
	if q.Unsafe {
		text += "; unsafe to set"
	}
	return text
}

func forDriver(name string) string {
	if name == "" {
		return ""
	}
	return ", for driver " + name
}

// Version prints what a binary is.
func Version(w io.Writer, v *adminpb.Version) {
	fmt.Fprintf(w, "nicd %s%s, %s, plugin protocol %d\n", v.Version, inParentheses(v.Revision), v.Go, v.PluginProtocol)
}

// Report prints the end of a run for a person, in so many columns if that is not 0.
func Report(w io.Writer, r *adminpb.Report, columns int) {
	fmt.Fprintf(w, "%.1f s measured\n", r.Seconds)
	rates(w, r.Interfaces, r.Streams, columns, nil)
	perGigabyte := ""
	if r.CpuSecondsPerGigabyte > 0 { // by streams: without one there is none
		perGigabyte = fmt.Sprintf(", %.2f per gigabyte received", r.CpuSecondsPerGigabyte)
	}
	fmt.Fprintf(w, "%.2f CPU seconds%s; %s resident at most\n", r.CpuSeconds, perGigabyte, bytesText(r.PeakResidentBytes))
	for _, p := range r.Problems {
		fmt.Fprintln(w, "problem:", p)
	}
}

// rates prints what happened a second, in so many columns if that is not 0.
func rates(w io.Writer, interfaces []*adminpb.InterfaceReport, streams []*adminpb.StreamReport, columns int, emphasis func(string) string) {
	t := newTable("INTERFACE", "LINK", "DRIVER", ">PID", "LRO", ">RX Gbit/s", ">TX Gbit/s", ">RX p/s", ">TX p/s", ">SEG/PKT", ">INTR/s", ">POLL/s", ">DROPS")
	for _, r := range interfaces {
		i := r.Interface
		t.row(i.Name, linkText(i.Link), i.Driver, i.Pid, i.LroOwner,
			fmt.Sprintf("%.2f", r.RxGbps), fmt.Sprintf("%.2f", r.TxGbps), count(r.RxPps), count(r.TxPps),
			fmt.Sprintf("%.1f", r.SegmentsPerDelivered), count(r.InterruptsPerSecond), count(r.PollsPerSecond), i.Drops)
	}
	t.fit(columns, "PID", "DRIVER", "POLL/s", "LINK", "TX p/s", "INTR/s", "RX p/s") // all are in "nicd status" or "nicd stats"
	t.print(w, emphasis)
	if len(streams) == 0 {
		return
	}
	fmt.Fprintln(w)
	t = newTable("STREAM", "FROM", "TO", "STATE", ">Gbit/s", ">RETRANSMITS")
	for _, r := range streams {
		s := r.Stream
		t.row(s.Name, s.From, s.To, s.State, fmt.Sprintf("%.2f", r.Gbps), s.Retransmits)
	}
	t.print(w, emphasis)
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func inParentheses(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}

func linkText(l *adminpb.Link) string {
	if !l.GetUp() {
		return "down"
	}
	text := fmt.Sprintf("%d Mbit/s", l.Mbps)
	if l.Mbps >= 1000 && l.Mbps%1000 == 0 {
		text = fmt.Sprintf("%d Gbit/s", l.Mbps/1000)
	}
	if !l.FullDuplex {
		text += " half"
	}
	if l.Paused {
		text += " paused"
	}
	return text
}

func bytesText(n uint64) string {
	const units = "KMGTPE"
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	f, u := float64(n)/1000, 0
	for ; f >= 1000 && u < len(units)-1; u++ {
		f /= 1000
	}
	return fmt.Sprintf("%.1f %cB", f, units[u])
}

func count(f float64) string {
	switch {
	case f >= 1e6:
		return fmt.Sprintf("%.2fM", f/1e6)
	case f >= 1e4:
		return fmt.Sprintf("%.1fk", f/1e3)
	}
	return fmt.Sprintf("%.0f", f)
}
