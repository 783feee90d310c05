package console

import (
	"fmt"
	"io"

	"nicd/proto/adminpb"
)

// Diagnosis prints what was seen to keep an interface from receiving more.
func Diagnosis(w io.Writer, d *adminpb.Diagnosis) {
	r := d.Rates
	fmt.Fprintf(w, "%s in %.1f s: %.2f Gbit/s received, %s packets, %.1f segments a packet, %s interrupts and %s polls a second\n",
		d.Interface, d.Seconds, r.GetRxGbps(), count(r.GetRxPps()), r.GetSegmentsPerDelivered(), count(r.GetInterruptsPerSecond()), count(r.GetPollsPerSecond()))
	for n, f := range d.Findings {
		fmt.Fprintf(w, "  %d. %s: %s\n", n+1, f.Where, f.What)
		if f.Remedy != "" {
			fmt.Fprintf(w, "     -> %s\n", f.Remedy)
		}
	}
	if len(d.Findings) == 0 {
		fmt.Fprintln(w, "nothing was seen that holds it up")
	}
}
