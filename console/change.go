package console

import (
	"fmt"
	"io"

	"nicd/proto/adminpb"
)

// Change prints what a change of an interface is and what it takes: before it is
// made, or after.
func Change(w io.Writer, c *adminpb.ChangeReply) {
	if len(c.Changes) == 0 {
		fmt.Fprintf(w, "%s: nothing is different\n", c.Interface)
		return
	}
	t := newTable("INTERFACE", "SETTING", "FROM", "TO", "TAKES", "BECAUSE")
	for _, d := range c.Changes {
		t.row(c.Interface, d.What, d.From, d.To, d.Effect, d.Because)
	}
	t.print(w, nil)
	fmt.Fprintf(w, "all together: %s: %s\n", c.Effect, effects[c.Effect])
}

// effects are what the words for what a change takes mean.
var effects = map[string]string{
	"live":    "nothing stops",
	"quiesce": "the queues pause for a moment, the device runs on",
	"reset":   "the device is stopped and started again; connections and counters go on",
}

// Reload prints what a reload changes.
func Reload(w io.Writer, r *adminpb.ReloadReply) {
	if len(r.Interfaces) == 0 {
		fmt.Fprintln(w, "nothing is different")
	}
	for n, c := range r.Interfaces {
		if n > 0 {
			fmt.Fprintln(w)
		}
		Change(w, c)
	}
}
