package framework

import (
	"fmt"
	"slices"
	"strings"
)

// Level is where a quirk's value comes from. A higher level wins.
type Level uint8

// Levels, lowest first.
const (
	FromDefault         Level = iota // the registry
	FromDriver                       // a driver's declaration for all its devices
	FromMatch                        // a driver's declaration for some, this one among them
	FromDriverConfig                 // the config's block for the driver
	FromInterfaceConfig              // the config's block for the interface
)

func (l Level) String() string {
	return [...]string{"default", "driver", "match", "driver config", "interface config"}[l]
}

// QuirkSetting is a value that the operator set.
type QuirkSetting struct {
	Name, Value string
	Origin      string // where, for messages: "nicd.hcl:12: interface vmx0"
}

// QuirkSources is all that bears on the quirks of one device.
type QuirkSources struct {
	Driver       string // its name; quirks that are other drivers' own are left out
	Declarations []Declaration
	Facts        DeviceFacts
	// DriverConfig and InterfaceConfig are the operator's settings.
	DriverConfig, InterfaceConfig []QuirkSetting
	// Unsafe: the operator accepts quirks that are unsafe to set. Without it one
	// in DriverConfig or InterfaceConfig is an error.
	Unsafe bool
	// Defines are the quirks that the driver's plugin knows: what [QuirksOf]
	// answered in it. Those that this program does not have are the driver's own,
	// or of a framework that is newer.
	Defines []QuirkInfo
}

// QuirkValue is a quirk's effective value and where it is from.
type QuirkValue struct {
	Info  *QuirkInfo
	Value string
	Level Level
	// Because says who decided: "declared by driver vmxnet3 for mode
	// passthrough: REFERENCE", "config nicd.hcl:12: interface vmx0".
	Because string
	// Overrode are the values of lower levels that lost, last one first, in the
	// form "VALUE: BECAUSE"; without the default.
	Overrode []string
}

// Resolution is the effective value of every quirk of one device. It does not
// change; when link or mode do, resolve again.
type Resolution struct {
	values []QuirkValue // by name
}

// ResolveQuirks works out every quirk's effective value. A level wins over all
// below it, and in a level what comes later over what comes earlier. An error
// (ErrUnknownQuirk, ErrQuirkValue, ErrForeignQuirk) says whose setting or
// declaration is wrong.
func ResolveQuirks(s QuirkSources) (*Resolution, error) {
	r, err := newResolution(s)
	if err != nil {
		return nil, err
	}
	for _, conditional := range []bool{false, true} {
		if err := r.declare(s, conditional); err != nil {
			return nil, err
		}
	}
	if err := r.configure(s, s.DriverConfig, FromDriverConfig); err != nil {
		return nil, err
	}
	if err := r.configure(s, s.InterfaceConfig, FromInterfaceConfig); err != nil {
		return nil, err
	}
	return r, nil
}

// newResolution has every quirk that means something to the driver, at its
// default.
func newResolution(s QuirkSources) (*Resolution, error) {
	infos := Quirks()
	for i := range s.Defines {
		d := s.Defines[i]
		if slices.ContainsFunc(infos, func(q *QuirkInfo) bool { return q.Name == d.Name }) {
			continue // the driver's package is part of this program after all
		}
		if err := d.validate(); err != nil {
			return nil, fmt.Errorf("driver %s: %w", s.Driver, err)
		}
		infos = append(infos, &d)
	}
	r := &Resolution{}
	for _, q := range infos {
		if q.For(s.Driver) {
			r.values = append(r.values, QuirkValue{Info: q, Value: q.Default, Because: "default"})
		}
	}
	slices.SortFunc(r.values, func(a, b QuirkValue) int { return strings.Compare(a.Info.Name, b.Info.Name) })
	return r, nil
}

func (r *Resolution) declare(s QuirkSources, conditional bool) error {
	for _, d := range s.Declarations {
		level, who := FromDriver, "declared by driver "+s.Driver
		if d.When != (Match{}) {
			level, who = FromMatch, who+" for "+d.When.String()
		}
		if (level == FromMatch) != conditional || !d.When.Matches(s.Facts) {
			continue
		}
		if d.Reference != "" {
			who += ": " + d.Reference
		}
		if err := r.set(s.Driver, d.Quirk, d.Value, level, who); err != nil {
			return fmt.Errorf("driver %s: %w", s.Driver, err)
		}
	}
	return nil
}

func (r *Resolution) configure(s QuirkSources, settings []QuirkSetting, level Level) error {
	for _, c := range settings {
		if v := r.find(c.Name); v != nil && v.Info.Unsafe && !s.Unsafe {
			return fmt.Errorf("%s: %w: %s is refused unless the config's daemon block says unsafe = true", c.Origin, ErrUnsafeQuirk, c.Name)
		}
		if err := r.set(s.Driver, c.Name, c.Value, level, operator(c.Origin)); err != nil {
			return fmt.Errorf("%s: %w", c.Origin, err)
		}
	}
	return nil
}

// operator says whose setting it was: what stands in a file is config, the rest
// speaks for itself ("nicd set").
func operator(origin string) string {
	if strings.Contains(origin, ":") {
		return "config " + origin
	}
	return origin
}

func (r *Resolution) set(driver, name, value string, level Level, because string) error {
	v := r.find(name)
	if v == nil {
		if q := LookupQuirk(name); q != nil {
			return fmt.Errorf("%w: %s is for driver %s, not %s", ErrForeignQuirk, name, q.Driver, driver)
		}
		return fmt.Errorf("%w: %s", ErrUnknownQuirk, name)
	}
	if err := v.Info.Check(value); err != nil {
		return err
	}
	if v.Level != FromDefault {
		v.Overrode = append([]string{v.Value + ": " + v.Because}, v.Overrode...)
	}
	v.Value, v.Level, v.Because = value, level, because
	return nil
}

func (r *Resolution) find(name string) *QuirkValue {
	i, ok := slices.BinarySearchFunc(r.values, name, func(v QuirkValue, name string) int {
		return strings.Compare(v.Info.Name, name)
	})
	if !ok {
		return nil
	}
	return &r.values[i]
}

// All are the quirks that mean something to the driver, by name. The caller must
// not change them.
func (r *Resolution) All() []QuirkValue { return r.values }

// Lookup is one quirk's value.
func (r *Resolution) Lookup(name string) (QuirkValue, bool) {
	if v := r.find(name); v != nil {
		return *v, true
	}
	return QuirkValue{}, false
}

// Map is every value by name, for [QuirkSet.SetAll], here or in a plugin.
func (r *Resolution) Map() map[string]string {
	m := make(map[string]string, len(r.values))
	for _, v := range r.values {
		m[v.Info.Name] = v.Value
	}
	return m
}

// Apply sets s to the resolution's values. Quirks of a driver whose package is
// not part of this program are not in any QuirkSet and left out.
func (r *Resolution) Apply(s *QuirkSet) error {
	m := r.Map()
	for name := range m {
		if LookupQuirk(name) == nil {
			delete(m, name)
		}
	}
	return s.SetAll(m)
}

// Changed are the names of quirks whose values differ between r and old, by
// name: what a change of link or mode did.
func (r *Resolution) Changed(old *Resolution) []string {
	var names []string
	for _, v := range r.values {
		if o := old.find(v.Info.Name); o == nil || o.Value != v.Value {
			names = append(names, v.Info.Name)
		}
	}
	return names
}
