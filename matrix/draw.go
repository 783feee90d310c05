package matrix

import (
	"fmt"
	"html/template"
	"io"
	"strings"
)

// Measures of the drawing, in pixels.
const (
	lineHeight  = 18
	groupHeight = 34
	labelWidth  = 610
	barWidth    = 420
	textWidth   = 330
	margin      = 10
)

// bar is a row as it is drawn.
type bar struct {
	Y, TextY, Width  int
	Label, Text, Why string
	Colour           string
}

// heading is a group's name over its bars.
type heading struct {
	Y    int
	Text string
}

// drawing is what the SVG's template draws.
type drawing struct {
	Width, Height int
	LabelX, BarX  int
	Bars          []bar
	Headings      []heading
}

// Colours by what a row is: colour-blind people can tell these apart (Okabe and
// Ito), and the text says it too.
var colours = map[string]string{
	"none": "#999999", "software": "#56b4e9", "hardware-only": "#0072b2", "hybrid": "#009e73", "control": "#d55e00",
}

func (r *Result) colour() string {
	if r.Expect != Moves {
		return colours["control"]
	}
	if len(r.Toggles) > 0 && !r.Under && r.Toggles[len(r.Toggles)-1] == "off" {
		return colours["none"]
	}
	return colours[r.LRO]
}

// draw lays the report out: one bar a row, in the order of the rows, as long as
// its throughput is part of the group's best.
func (p *Report) draw() *drawing {
	d := &drawing{Width: labelWidth + barWidth + textWidth + 2*margin, LabelX: labelWidth, BarX: labelWidth + margin}
	best := map[string]float64{}
	for _, r := range p.Results {
		best[r.Group] = max(best[r.Group], r.Gbps)
	}
	y, group := margin, ""
	for i := range p.Results {
		r := &p.Results[i]
		if r.Group != group {
			group = r.Group
			y += groupHeight
			d.Headings = append(d.Headings, heading{Y: y - 8, Text: group})
		}
		b := bar{Y: y, TextY: y + 13, Label: r.label(), Text: r.caption(), Why: r.Why, Colour: r.colour()}
		if most := best[group]; most > 0 {
			b.Width = max(1, int(barWidth*r.Gbps/most))
		}
		if r.Expect == Refused {
			b.Width = 0
		}
		d.Bars = append(d.Bars, b)
		y += lineHeight
	}
	d.Height = y + margin
	return d
}

func (r *Result) label() string { return r.ID + ": " + r.title() }

func (r *Result) caption() string {
	if r.Expect == Refused {
		return "refused without unsafe = true"
	}
	c := r.cells()
	text := fmt.Sprintf("%s× base, %s CPU s/GB, %s intr/s", c[0], c[2], c[3])
	if r.Direction == Receive {
		text += ", " + c[4] + " seg/pkt"
	}
	if r.Retransmits > 0 {
		text += ", " + c[5] + " retr"
	}
	if r.Drops > 0 {
		text += ", " + c[6] + " drops"
	}
	return text
}

// The template's HTML escaping is XML's, as far as texts and attributes go.
var svgTemplate = template.Must(template.New("svg").Parse(`<svg xmlns="http://www.w3.org/2000/svg" width="{{.Width}}" height="{{.Height}}" viewBox="0 0 {{.Width}} {{.Height}}" font-family="sans-serif" font-size="11">
<rect width="{{.Width}}" height="{{.Height}}" fill="#ffffff"/>
{{- range .Headings}}
<text x="10" y="{{.Y}}" font-size="13" font-weight="bold">{{.Text}}</text>
{{- end}}
{{- range .Bars}}
<g><title>{{.Why}}</title><text x="{{$.LabelX}}" y="{{.TextY}}" text-anchor="end">{{.Label}}</text>
<rect x="{{$.BarX}}" y="{{.Y}}" width="{{.Width}}" height="14" fill="{{.Colour}}"/>
<text x="{{.TextX $.BarX}}" y="{{.TextY}}">{{.Text}}</text></g>
{{- end}}
</svg>
`))

// TextX is where the text behind a bar begins.
func (b bar) TextX(barX int) int { return barX + b.Width + 6 }

// SVG draws the report: a bar for each row, in the order of the rows.
func (p *Report) SVG(w io.Writer) error { return svgTemplate.Execute(w, p.draw()) }

var htmlTemplate = template.Must(template.New("html").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>nicd matrix</title>
<style>
body { font-family: sans-serif; margin: 2em; color: #222 }
table { border-collapse: collapse; font-size: 13px; margin-top: 2em }
th, td { padding: 3px 9px; text-align: right; border-bottom: 1px solid #ddd }
th:first-child, td:first-child, td:last-child, th:last-child { text-align: left }
tr.group td { font-weight: bold; text-align: left; padding-top: 1.2em }
.problem { color: #a00 }
svg { max-width: 100%; height: auto }
</style></head><body>
<h1>nicd matrix</h1>
<p>{{.Rounds}} × {{.Seconds}} s a row, on device models and {{.TCP}}. Bars are in the order of the
rows, as long as a row's throughput is part of its group's best. Figures are to be compared with those of this run and
no other.</p>
{{.Picture}}
<table><tr><th>row</th><th>ratio to LRO off</th><th>Gbit/s</th><th>CPU s/GB</th><th>interrupts/s</th><th>segments/packet</th><th>retransmits</th><th>drops</th><th>idle</th><th>what and why</th></tr>
{{- range .Lines}}
{{- if .Group}}
<tr class="group"><td colspan="10">{{.Group}}</td></tr>
{{- end}}
<tr><td>{{.ID}}</td>{{range .Cells}}<td>{{.}}</td>{{end}}<td>{{.What}}. {{.Why}}{{range .Problems}} <span class="problem">{{.}}</span>{{end}}{{if .Refusal}} <i>{{.Refusal}}</i>{{end}}</td></tr>
{{- end}}
</table>
</body></html>
`))

// line is a row of the HTML table.
type line struct {
	Group, ID, What, Why, Refusal string
	Cells, Problems               []string
}

// HTML writes the report as one page that needs nothing else.
func (p *Report) HTML(w io.Writer) error {
	var picture strings.Builder
	if err := p.SVG(&picture); err != nil {
		return err
	}
	page := struct {
		Rounds  int
		Seconds float64
		TCP     string
		Picture template.HTML
		Lines   []line
	}{p.Rounds, p.Seconds, "a TCP stack in user space", template.HTML(picture.String()), nil} // whose texts are escaped
	if p.Ports == "tap" {
		page.TCP = "the kernel's TCP, through TAP ports"
	}
	group := ""
	for i := range p.Results {
		r := &p.Results[i]
		l := line{ID: r.ID, What: r.title(), Why: r.Why, Refusal: r.Refusal, Cells: r.cells(), Problems: r.Problems}
		if r.Group != group {
			group, l.Group = r.Group, r.Group
		}
		page.Lines = append(page.Lines, l)
	}
	return htmlTemplate.Execute(w, page)
}
