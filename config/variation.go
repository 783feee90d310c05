package config

import (
	"encoding"
	"math/big"
	"reflect"
	"strings"
	"time"
	"unicode"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// variation decodes a variations block into a copy of the model's knobs.
func (d *decoder) variation(b *hclsyntax.Block, m Model) any {
	if m.Variation == nil {
		d.problem(b.TypeRange, "model %s has no variations", m.Name)
		return nil
	}
	knobs := reflect.New(reflect.TypeOf(m.Variation)).Elem()
	knobs.Set(reflect.ValueOf(m.Variation))
	fields := knobFields(knobs)
	s := d.section("variations of model "+m.Name, b.Body)
	for name := range fields {
		s.attrs = append(s.attrs, name)
	}
	for _, a := range settings(b) {
		if f, ok := fields[a.Name]; ok {
			d.knob(a, f)
		}
	}
	s.end(nil)
	return knobs.Interface()
}

// knobFields are the exported fields of a struct by their names in a config.
func knobFields(knobs reflect.Value) map[string]reflect.Value {
	fields := map[string]reflect.Value{}
	for i := range knobs.NumField() {
		if f := knobs.Type().Field(i); f.IsExported() {
			fields[dashed(f.Name)] = knobs.Field(i)
		}
	}
	return fields
}

// dashed is a Go name in lower case with dashes: ICRKeeps is icr-keeps.
func dashed(name string) string {
	var out strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		upper := unicode.IsUpper(r)
		after := i > 0 && !unicode.IsUpper(runes[i-1])                                                    // FewVectors
		before := i > 0 && i+1 < len(runes) && unicode.IsUpper(runes[i-1]) && unicode.IsLower(runes[i+1]) // ICRKeeps
		if upper && (after || before) {
			out.WriteByte('-')
		}
		out.WriteRune(unicode.ToLower(r))
	}
	return out.String()
}

// knob sets a field from an attribute.
func (d *decoder) knob(a *hclsyntax.Attribute, f reflect.Value) {
	v, ok := d.evaluate(a)
	if !ok {
		return
	}
	want, set := setKnob(f, v)
	if !set {
		d.problem(a.Expr.Range(), "%s is %s, not %s", a.Name, want, d.text(a.Expr.Range()))
	}
}

// setKnob sets f to v, or says what it would have taken. A type with words for
// its values (encoding.TextUnmarshaler) judges them itself.
func setKnob(f reflect.Value, v cty.Value) (want string, ok bool) {
	words, hasWords := f.Addr().Interface().(encoding.TextUnmarshaler)
	switch {
	case hasWords:
		want = "text"
		if v.Type() == cty.String {
			err := words.UnmarshalText([]byte(v.AsString()))
			if ok = err == nil; !ok {
				want = strings.Join(strings.Fields(err.Error()), " ")
			}
		}
	case f.Type() == reflect.TypeFor[time.Duration]():
		want = "a time such as \"50us\""
		if v.Type() == cty.String {
			t, err := time.ParseDuration(v.AsString())
			if ok = err == nil && t >= 0; ok {
				f.SetInt(int64(t))
			}
		}
	case f.Kind() == reflect.Bool:
		want = "true or false"
		if ok = v.Type() == cty.Bool; ok {
			f.SetBool(v.True())
		}
	case f.Kind() == reflect.String:
		want = "text"
		if ok = v.Type() == cty.String; ok {
			f.SetString(v.AsString())
		}
	case f.CanInt():
		want = "a whole number"
		if n, exact := whole(v); exact && !f.OverflowInt(n) {
			f.SetInt(n)
			ok = true
		}
	case f.CanUint():
		want = "a whole number from 0"
		if n, exact := whole(v); exact && n >= 0 && !f.OverflowUint(uint64(n)) {
			f.SetUint(uint64(n))
			ok = true
		}
	case f.CanFloat():
		want = "a number"
		if ok = v.Type() == cty.Number; ok {
			n, _ := v.AsBigFloat().Float64()
			f.SetFloat(n)
		}
	default:
		want = "not to be set here"
	}
	return want, ok
}

func whole(v cty.Value) (int64, bool) {
	if v.Type() != cty.Number {
		return 0, false
	}
	n, accuracy := v.AsBigFloat().Int64()
	return n, accuracy == big.Exact
}
