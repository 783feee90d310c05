package config

import (
	"fmt"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"nicd/framework"
)

// inQuirks says where an attribute that is a quirk's name belongs.
func inQuirks(name string) string {
	if framework.LookupQuirk(name) != nil {
		return name + " is a quirk: it goes in quirks { }"
	}
	return ""
}

// quirks decodes a quirks block for a driver. A name that the driver might know
// and nobody here does is kept.
func (d *decoder) quirks(b *hclsyntax.Block, driver, what string) []framework.QuirkSetting {
	s := d.section("quirks of "+what, b.Body)
	var all []framework.QuirkSetting
	for _, a := range settings(b) {
		s.attrs = append(s.attrs, a.Name)
		q := framework.LookupQuirk(a.Name)
		switch {
		case q == nil && d.judges(driver):
			d.problem(a.NameRange, "unknown quirk %q of %s%s", a.Name, what, didYouMean(a.Name, quirkNames(driver)))
			continue
		case q != nil && driver != "" && !q.For(driver):
			d.problem(a.NameRange, "quirk %q is for driver %s, not %s", a.Name, q.Driver, driver)
			continue
		}
		text, ok := d.quirkValue(a, q)
		if !ok {
			continue
		}
		if q != nil && q.Unsafe {
			d.unsafe = append(d.unsafe, unsafeSetting{name: a.Name, what: what, at: a.NameRange})
		}
		all = append(all, framework.QuirkSetting{Name: a.Name, Value: text, Origin: d.origin(a.NameRange, what, "").String()})
	}
	s.end(nil)
	return all
}

// quirkValue is a quirk's value as text. Values of quirks that nobody here knows
// (q is nil) are not checked.
func (d *decoder) quirkValue(a *hclsyntax.Attribute, q *framework.QuirkInfo) (string, bool) {
	v, ok := d.evaluate(a)
	if !ok {
		return "", false
	}
	text, ok := scalar(v)
	if !ok {
		d.problem(a.Expr.Range(), "quirk %s is one value, not %s", a.Name, kind(v))
		return "", false
	}
	if q == nil || q.Check(text) == nil && (q.Type == "bool") == (v.Type() == cty.Bool) && (q.Type == "int") == (v.Type() == cty.Number) {
		return text, true
	}
	d.problem(a.Expr.Range(), "quirk %s is %s, not %s%s", a.Name, q.Values(), d.text(a.Expr.Range()), choiceHint(q, text))
	return "", false
}

// choiceHint is the nearest choice; all of them are in the message already.
func choiceHint(q *framework.QuirkInfo, text string) string {
	if n := nearest(text, q.Choices); n != "" {
		return fmt.Sprintf("; did you mean %q?", n)
	}
	return ""
}

// judges tells whether all quirks of a driver are known here.
func (d *decoder) judges(driver string) bool {
	return slices.Contains(d.vocabulary.Drivers, driver)
}

// unsafeSetting is a place where a config sets an unsafe quirk.
type unsafeSetting struct {
	name, what string
	at         hcl.Range
}

// checkUnsafe reports unsafe quirks, unless the config says that it accepts them.
func (d *decoder) checkUnsafe(c *Config) {
	if c.Daemon.Unsafe {
		return
	}
	for _, u := range d.unsafe {
		d.problem(u.at, "quirk %s of %s is unsafe to set: a wrong value loses throughput without a word; the daemon block has to say unsafe = true", u.name, u.what)
	}
}
