package config

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// decoder collects problems while it turns blocks into structs.
type decoder struct {
	filename   string
	src        []byte
	lines      []string // of src, once they are asked for
	vocabulary Vocabulary
	problems   Diagnostics
	unsafe     []unsafeSetting
	places     map[string]hcl.Range // of values that check looks at again, see place
}

// place remembers where a block's attribute is; a block is named by its
// Origin.What.
func (d *decoder) place(what, attr string, at hcl.Range) {
	if d.places == nil {
		d.places = make(map[string]hcl.Range)
	}
	d.places[what+" "+attr] = at
}

// at is the place of an attribute, or of the block if it has none.
func (d *decoder) at(o Origin, attr string) hcl.Range {
	if r, ok := d.places[o.What+" "+attr]; ok {
		return r
	}
	return hcl.Range{Start: hcl.Pos{Line: o.Line, Column: 1}}
}

func (d *decoder) problem(at hcl.Range, format string, args ...any) {
	d.problems = append(d.problems, Problem{
		File:   d.filename,
		Line:   at.Start.Line,
		Column: at.Start.Column,
		Source: d.line(at.Start.Line),
		Text:   fmt.Sprintf(format, args...),
	})
}

func (d *decoder) line(n int) string {
	if d.lines == nil {
		d.lines = strings.Split(string(d.src), "\n")
	}
	if n < 1 || n > len(d.lines) {
		return ""
	}
	return strings.TrimSuffix(d.lines[n-1], "\r")
}

// hcl takes over problems that the HCL parser found, the first of each kind: one
// quote that is missing makes a dozen of them.
func (d *decoder) hcl(diags hcl.Diagnostics) {
	seen := map[string]bool{}
	for _, g := range diags {
		if seen[g.Summary] {
			continue
		}
		seen[g.Summary] = true
		at := hcl.Range{}
		if g.Subject != nil {
			at = *g.Subject
		}
		d.problem(at, "%s", sentence(g))
	}
}

// sentence is what a parser's diagnostic says, on one line and without advice
// on syntax that a config has no use for.
func sentence(g *hcl.Diagnostic) string {
	if g.Summary == "Invalid multi-line string" {
		return "text is not closed on its line"
	}
	text := strings.Join(strings.Fields(g.Summary), " ")
	if text != "" {
		text = strings.ToLower(text[:1]) + text[1:]
	}
	detail, _, _ := strings.Cut(strings.Join(strings.Fields(g.Detail), " "), ". ")
	if detail = strings.TrimSuffix(detail, "."); detail != "" {
		text += ": " + detail
	}
	return text
}

// section is a block's body while it is decoded. Asking for an attribute says
// that it is known; what nobody asked for is unknown at the end.
type section struct {
	*decoder
	what   string // for messages: `interface "vmx0"`
	body   *hclsyntax.Body
	attrs  []string
	blocks []string
}

func (d *decoder) section(what string, body *hclsyntax.Body) *section {
	return &section{decoder: d, what: what, body: body}
}

// end reports everything in the section that nobody asked for. The answer of
// elsewhere, if any, says where an unknown attribute would be right.
func (s *section) end(elsewhere func(name string) string) {
	for name, a := range s.body.Attributes {
		if slices.Contains(s.attrs, name) {
			continue
		}
		hint := didYouMean(name, s.attrs)
		if elsewhere != nil {
			if e := elsewhere(name); e != "" {
				hint = "; " + e
			}
		}
		if slices.Contains(s.blocks, name) {
			hint = fmt.Sprintf("; %s is a block: write it without =", name)
		}
		s.problem(a.NameRange, "unknown attribute %q in %s%s", name, s.what, hint)
	}
	for _, b := range s.body.Blocks {
		if slices.Contains(s.blocks, b.Type) {
			continue
		}
		hint := didYouMean(b.Type, s.blocks)
		if slices.Contains(s.attrs, b.Type) {
			hint = fmt.Sprintf("; %s is an attribute: write it with =", b.Type)
		}
		s.problem(b.TypeRange, "unknown block %q in %s%s", b.Type, s.what, hint)
	}
}

// each calls do for every block of a type that has the labels it should.
func (s *section) each(kind string, labels int, do func(b *hclsyntax.Block)) {
	s.blocks = append(s.blocks, kind)
	for _, b := range s.body.Blocks {
		switch {
		case b.Type != kind:
		case len(b.Labels) == labels:
			do(b)
		case labels == 0:
			s.problem(b.TypeRange, "block %s has no label, this has %d", kind, len(b.Labels))
		case labels == 2:
			s.problem(b.TypeRange, "block %s has a kind and a name: write %s \"qemu\" \"NAME\" {", kind, kind)
		default:
			s.problem(b.TypeRange, "block %s has a name: write %s \"NAME\" {", kind, kind)
		}
	}
}

// one calls do for the only block of a type, if there is one.
func (s *section) one(kind string, labels int, do func(b *hclsyntax.Block)) (found bool) {
	s.each(kind, labels, func(b *hclsyntax.Block) {
		if found {
			s.problem(b.TypeRange, "a second block %s in %s", kind, s.what)
			return
		}
		found = true
		do(b)
	})
	return found
}

// value evaluates an attribute. It is not there, or a problem, if ok is false.
func (s *section) value(name string) (v cty.Value, at hcl.Range, ok bool) {
	s.attrs = append(s.attrs, name)
	a := s.body.Attributes[name]
	if a == nil {
		return cty.NilVal, hcl.Range{}, false
	}
	v, ok = s.evaluate(a)
	return v, a.Expr.Range(), ok
}

func (d *decoder) evaluate(a *hclsyntax.Attribute) (cty.Value, bool) {
	if vars := a.Expr.Variables(); len(vars) > 0 {
		d.problem(a.Expr.Range(), "%s is not a value; text goes in quotes: %s = %q", a.Name, a.Name, d.text(a.Expr.Range()))
		return cty.NilVal, false
	}
	v, diags := a.Expr.Value(nil)
	if diags.HasErrors() {
		d.hcl(diags)
		return cty.NilVal, false
	}
	if !v.IsWhollyKnown() || v.IsNull() {
		d.problem(a.Expr.Range(), "%s has no value", a.Name)
		return cty.NilVal, false
	}
	return v, true
}

// text is the source of a range on one line, shortened.
func (d *decoder) text(r hcl.Range) string {
	if !r.CanSliceBytes(d.src) {
		return "..."
	}
	t, _, _ := strings.Cut(string(r.SliceBytes(d.src)), "\n")
	return t[:min(len(t), 60)]
}

// kind says in words what a value is.
func kind(v cty.Value) string {
	switch t := v.Type(); {
	case t == cty.String:
		return "text"
	case t == cty.Number:
		return "a number"
	case t == cty.Bool:
		return "true or false"
	case t.IsTupleType() || t.IsListType() || t.IsSetType():
		return "a list"
	}
	return "a block or object"
}

// typed is value with a check of its type.
func (s *section) typed(name string, t cty.Type, want string) (v cty.Value, at hcl.Range, ok bool) {
	v, at, ok = s.value(name)
	if ok && v.Type() != t {
		s.problem(at, "%s is %s, not %s", name, want, kind(v))
		return v, at, false
	}
	return v, at, ok
}

func (s *section) string(name string, dst *string) (at hcl.Range, ok bool) {
	v, at, ok := s.typed(name, cty.String, "text")
	if ok {
		*dst = v.AsString()
	}
	return at, ok
}

func (s *section) bool(name string, dst *bool) {
	if v, _, ok := s.typed(name, cty.Bool, "true or false"); ok {
		*dst = v.True()
	}
}

// int decodes a whole number from least to most.
func (s *section) int(name string, dst *int, least, most int) {
	v, at, ok := s.typed(name, cty.Number, "a number")
	if !ok {
		return
	}
	n, accuracy := v.AsBigFloat().Int64()
	if accuracy != big.Exact || n < int64(least) || n > int64(most) {
		s.problem(at, "%s is a whole number from %d to %d, not %s", name, least, most, number(v))
		return
	}
	*dst = int(n)
}

func (s *section) uint64(name string, dst *uint64) {
	v, at, ok := s.typed(name, cty.Number, "a number")
	if !ok {
		return
	}
	f := v.AsBigFloat()
	n, accuracy := f.Uint64()
	if accuracy != big.Exact || !f.IsInt() { // Uint64 calls 1.5 exact
		s.problem(at, "%s is a whole number from 0 to 2^64-1, not %s", name, number(v))
		return
	}
	*dst = n
}

// chance decodes a number from 0 to 1.
func (s *section) chance(name string, dst *float64) {
	v, at, ok := s.typed(name, cty.Number, "a number")
	if !ok {
		return
	}
	f, _ := v.AsBigFloat().Float64()
	if f < 0 || f > 1 {
		s.problem(at, "%s is a chance from 0 to 1, not %s", name, number(v))
		return
	}
	*dst = f
}

func (s *section) duration(name string, dst *time.Duration, most time.Duration) {
	v, at, ok := s.typed(name, cty.String, "a time such as \"50us\"")
	if !ok {
		return
	}
	t, err := time.ParseDuration(v.AsString())
	if err != nil || t < 0 || t > most {
		s.problem(at, "%s is a time from 0s to %v such as \"50us\", not %q", name, most, v.AsString())
		return
	}
	*dst = t
}

// choice decodes one of the words in known.
func (s *section) choice(name string, dst *string, known ...string) (at hcl.Range, ok bool) {
	var text string
	at, ok = s.string(name, &text)
	if !ok {
		return at, false
	}
	if !slices.Contains(known, text) {
		s.problem(at, "%s can't be %q%s", name, text, didYouMean(text, known))
		return at, false
	}
	*dst = text
	return at, true
}

// list decodes a list, or one element that stands for a list of one, and calls
// do for each element, all of which have type t.
func (s *section) list(name string, t cty.Type, want string, do func(v cty.Value, at hcl.Range)) {
	v, at, ok := s.value(name)
	if !ok {
		return
	}
	elements := []cty.Value{v}
	if v.Type().IsTupleType() || v.Type().IsListType() || v.Type().IsSetType() {
		elements = v.AsValueSlice()
	}
	for _, e := range elements {
		if e.Type() != t || e.IsNull() {
			s.problem(at, "%s is %s or a list of it, not of %s", name, want, kind(e))
			return
		}
		do(e, at)
	}
}

// number is a number as someone would write it.
func number(v cty.Value) string {
	f := v.AsBigFloat()
	if n, accuracy := f.Int64(); accuracy == big.Exact {
		return strconv.FormatInt(n, 10)
	}
	return f.Text('g', 12)
}

// scalar is a value as text, for settings whose types are known elsewhere.
func scalar(v cty.Value) (string, bool) {
	switch v.Type() {
	case cty.String:
		return v.AsString(), true
	case cty.Bool:
		return strconv.FormatBool(v.True()), true
	case cty.Number:
		return number(v), true
	}
	return "", false
}

// settings are a block's attributes in the order of the file.
func settings(b *hclsyntax.Block) []*hclsyntax.Attribute {
	var all []*hclsyntax.Attribute
	for _, a := range b.Body.Attributes {
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b *hclsyntax.Attribute) int { return a.NameRange.Start.Byte - b.NameRange.Start.Byte })
	return all
}
