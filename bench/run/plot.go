package main

import (
	"fmt"
	"strings"

	"nicd/bench/trace"
)

var colours = map[string]string{
	"nicd": "#1b7f4d", "gvisor": "#c8553d", "dpdk": "#3d6cc8", "tailscale": "#8a5fbf", "wireguard": "#c79a2b",
}

const (
	barWidth  = 14
	groupGap  = 18
	plotTop   = 60
	plotTall  = 320
	plotLeft  = 60
	mostShown = 400.0 // nanoseconds; longer bars are cut and labelled
)

// plot returns the results for headers in the cache as bars: each peer with its natural way to treat checksums.
func plot(all results) string {
	var b strings.Builder
	bars := []struct {
		name   string
		verify bool
		label  string
	}{
		{"nicd", false, "nicd, trusted"}, {"dpdk", false, "DPDK + ptype, trusted"}, {"gvisor", false, "gVisor, trusted"},
		{"nicd", true, "nicd, verified"}, {"tailscale", true, "Tailscale, verified"}, {"wireguard", true, "wireguard-go, verified"},
	}
	x := plotLeft
	var body strings.Builder
	for _, s := range trace.Specs() {
		if s.N != trace.Hot {
			continue
		}
		start := x
		for _, bar := range bars {
			v, ok := all.median(bar.name, key{s.String(), bar.verify})
			if !ok {
				continue
			}
			h := min(v, mostShown) / mostShown * plotTall
			fill := colours[bar.name]
			opacity := 1.0
			if bar.verify && bar.name == "nicd" {
				opacity = 0.6
			}
			fmt.Fprintf(&body, `<rect x="%d" y="%.1f" width="%d" height="%.1f" fill="%s" opacity="%.1f"><title>%s, %v: %.1f ns</title></rect>`+"\n",
				x, plotTop+plotTall-h, barWidth-2, h, fill, opacity, bar.label, s, v)
			fmt.Fprintf(&body, `<text x="%d" y="%.1f" font-size="9" text-anchor="middle">%.0f</text>`+"\n", x+barWidth/2-1, plotTop+plotTall-h-3, v)
			x += barWidth
		}
		fmt.Fprintf(&body, `<text x="%d" y="%d" font-size="11" text-anchor="middle">%d flows</text>`+"\n", (start+x)/2, plotTop+plotTall+16, s.Flows)
		fmt.Fprintf(&body, `<text x="%d" y="%d" font-size="11" text-anchor="middle">trains of %d</text>`+"\n", (start+x)/2, plotTop+plotTall+30, s.Row)
		x += groupGap
	}
	width := x + 20
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif">`+"\n", width, plotTop+plotTall+50)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	fmt.Fprintf(&b, `<text x="%d" y="20" font-size="14">Receive coalescing: nanoseconds per packet, headers in the cache (lower is better)</text>`+"\n", plotLeft)
	lx := plotLeft
	for _, bar := range bars {
		opacity := 1.0
		if bar.verify && bar.name == "nicd" {
			opacity = 0.6
		}
		fmt.Fprintf(&b, `<rect x="%d" y="32" width="10" height="10" fill="%s" opacity="%.1f"/><text x="%d" y="41" font-size="11">%s</text>`+"\n",
			lx, colours[bar.name], opacity, lx+14, bar.label)
		lx += 34 + 6*len(bar.label)
	}
	for v := 0.0; v <= mostShown; v += 100 {
		y := plotTop + plotTall - v/mostShown*plotTall
		fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" font-size="10" text-anchor="end">%.0f</text>`+"\n",
			plotLeft-6, width-10, y, y, plotLeft-10, y+3, v)
	}
	b.WriteString(body.String())
	b.WriteString("</svg>\n")
	return b.String()
}
