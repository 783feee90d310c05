package main

import (
	"fmt"
	"math"
	"runtime"
	"strings"

	"nicd/bench/trace"
)

// goal is a ratio that is to be reached for all traces of a kind.
type goal struct {
	peer   string
	verify bool
	most   float64
	text   string
}

var goals = []goal{
	{"gvisor", false, 0.20, "gVisor, checksum trusted"},
	{"dpdk", false, 0.50, "DPDK with parsing, checksum trusted"},
	{"tailscale", true, 0.50, "Tailscale, checksum verified"},
}

// table returns the results as Markdown.
func table(all results, rounds int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Coalescing, measured\n\n")
	fmt.Fprintf(&b, "Nanoseconds per packet of 1448 bytes of payload, batches of %d: the median of %d interleaved rounds of each\n"+
		"engine's median, and the least and the most of the rounds. In brackets: outputs for all packets of the trace.\n"+
		"%s, %s/%s.\n", trace.Batch, rounds, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	for _, verify := range []bool{false, true} {
		for _, n := range []int{trace.Hot, trace.Cold} {
			section(&b, all, n, verify)
		}
	}
	fmt.Fprintf(&b, "\n## Ratios\n\n")
	fmt.Fprintf(&b, "nicd's time divided by the peer's, over all traces both of them run.\n\n")
	fmt.Fprintf(&b, "| peer | best | geometric mean | worst | goal for the worst |\n|---|---|---|---|---|\n")
	for _, g := range goals {
		least, mean, most, where := ratios(all, g)
		fmt.Fprintf(&b, "| %s | %.2f | %.2f | %.2f (%s) | %.2f |\n", g.text, least, mean, most, where, g.most)
	}
	fmt.Fprintf(&b, "\n![plot](lro-bench.svg)\n")
	return b.String()
}

// section writes the table of one kind of trace.
func section(b *strings.Builder, all results, n int, verify bool) {
	heat, sums := "headers in the cache", "checksum trusted"
	if n == trace.Cold {
		heat = "64 MB of buffers"
	}
	if verify {
		sums = "checksum verified by the engine"
	}
	fmt.Fprintf(b, "\n## %s, %s\n\n| engine |", strings.ToUpper(sums[:1])+sums[1:], heat)
	var columns []trace.Spec
	for _, s := range trace.Specs() {
		if s.N == n {
			columns = append(columns, s)
			fmt.Fprintf(b, " %d flows, trains of %d |", s.Flows, s.Row)
		}
	}
	fmt.Fprintf(b, "\n|---|%s\n", strings.Repeat("---|", len(columns)))
	for _, p := range peers() {
		row := fmt.Sprintf("| %s |", p.label)
		any := false
		for _, s := range columns {
			k := key{s.String(), verify}
			v, ok := all.median(p.name, k)
			if !ok {
				row += " |"
				continue
			}
			any = true
			least, most := all.spread(p.name, k)
			row += fmt.Sprintf(" **%.1f** %.1f–%.1f (%d) |", v, least, most, all[p.name][k][0].outputs)
		}
		if any {
			fmt.Fprintln(b, row)
		}
	}
}

// ratios returns the least, the geometric mean and the most of nicd's time over a peer's.
func ratios(all results, g goal) (least, mean, most float64, where string) {
	least = math.Inf(1)
	logs, n := 0.0, 0
	for _, s := range trace.Specs() {
		k := key{s.String(), g.verify}
		ours, ok1 := all.median("nicd", k)
		theirs, ok2 := all.median(g.peer, k)
		if !ok1 || !ok2 {
			continue
		}
		r := ours / theirs
		least = min(least, r)
		if r > most {
			most, where = r, k.trace
		}
		logs += math.Log(r)
		n++
	}
	return least, math.Exp(logs / float64(n)), most, where
}
