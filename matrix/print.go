package matrix

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Print writes the report as a table, group by group, in the order of the rows.
func (p *Report) Print(w io.Writer) {
	t := tabwriter.NewWriter(w, 2, 0, 2, ' ', 0)
	group := ""
	for i := range p.Results {
		r := &p.Results[i]
		if r.Group != group {
			group = r.Group
			fmt.Fprintf(t, "\n%s\n", group)
			fmt.Fprintln(t, "ROW\tRATIO\tGbit/s\tCPU s/GB\tINTR/s\tSEG/PKT\tRETRANS\tDROPS\tIDLE\tWHAT")
		}
		fmt.Fprintln(t, strings.Join(append([]string{r.ID}, r.cells()...), "\t")+"\t"+r.title())
	}
	t.Flush()
	fmt.Fprintf(w, "\nRATIO is by the row with ratio 1.00 above it, which is the one with LRO off unless the group is about something else. IDLE is the share of tenths of seconds in which nothing arrived.\n")
	for i := range p.Results {
		for _, problem := range p.Results[i].Problems {
			fmt.Fprintf(w, "problem: %s: %s\n", p.Results[i].ID, problem)
		}
	}
}

// cells are a result's figures as text: ratio, throughput, CPU, interrupts,
// segments, retransmits, drops, idle.
func (r *Result) cells() []string {
	if r.Expect == Refused {
		return []string{"refused", "-", "-", "-", "-", "-", "-", "-"}
	}
	ratio, segments := "-", "-"
	if r.Ratio > 0 || r.Expect == Collapses { // a control may have got nothing at all
		ratio = fmt.Sprintf("%.2f", r.Ratio)
	}
	if r.Direction == Receive {
		segments = fmt.Sprintf("%.1f", r.SegmentsPerPacket)
	}
	return []string{
		ratio, fmt.Sprintf("%.3f", r.Gbps), fmt.Sprintf("%.2f", r.CPUSecondsPerGB), fmt.Sprintf("%.0f", r.InterruptsPerSecond),
		segments, fmt.Sprint(r.Retransmits), fmt.Sprint(r.Drops), fmt.Sprintf("%.0f%%", 100*r.Idle),
	}
}

// Line is the result on one line, for progress.
func (r Result) Line() string {
	if r.Expect == Refused {
		return fmt.Sprintf("%-20s refused: %s", r.ID, r.Refusal)
	}
	return fmt.Sprintf("%-20s %8.3f Gbit/s  %s", r.ID, r.Gbps, r.title())
}

// JSON writes the report for programs. The names of its fields are stable.
func (p *Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(p)
}
