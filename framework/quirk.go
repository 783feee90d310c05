package framework

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// QuirkInfo describes a quirk: a typed way in which devices differ. The registry
// of them is what config, the command line's listing, the documentation and
// the conformance kit's linter are made from.
type QuirkInfo struct {
	Name      string // "lro-owner"
	Type      string // "bool", "int" or the choices joined by |
	Choices   []string
	Default   string
	Doc       string // one sentence: what it does
	Reference string // where it is known from
	Min, Max  int    // for int
	Driver    string // the driver it is for, "" for all
	id        int
}

var registry []*QuirkInfo

// Quirks are all registered quirks, by name. The caller must not change them.
func Quirks() []*QuirkInfo {
	all := slices.Clone(registry)
	slices.SortFunc(all, func(a, b *QuirkInfo) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// LookupQuirk returns the quirk of a name, nil if there is none.
func LookupQuirk(name string) *QuirkInfo {
	i := slices.IndexFunc(registry, func(q *QuirkInfo) bool { return q.Name == name })
	if i < 0 {
		return nil
	}
	return registry[i]
}

// Check tells whether value is one that the quirk can have.
func (q *QuirkInfo) Check(value string) error {
	_, err := q.parse(value)
	return err
}

func (q *QuirkInfo) parse(value string) (int64, error) {
	switch {
	case q.Choices != nil:
		if i := slices.Index(q.Choices, value); i >= 0 {
			return int64(i), nil
		}
		return 0, fmt.Errorf("quirk %s is one of %s, not %q", q.Name, strings.Join(q.Choices, ", "), value)
	case q.Type == "bool":
		b, err := strconv.ParseBool(value)
		if err != nil {
			return 0, fmt.Errorf("quirk %s is true or false, not %q", q.Name, value)
		}
		if b {
			return 1, nil
		}
		return 0, nil
	default:
		n, err := strconv.Atoi(value)
		if err != nil || n < q.Min || n > q.Max {
			return 0, fmt.Errorf("quirk %s is a number from %d to %d, not %q", q.Name, q.Min, q.Max, value)
		}
		return int64(n), nil
	}
}

func register(q QuirkInfo) *QuirkInfo {
	if LookupQuirk(q.Name) != nil {
		panic("framework: quirk " + q.Name + " registered twice")
	}
	q.id = len(registry)
	if err := q.Check(q.Default); err != nil {
		panic("framework: default: " + err.Error())
	}
	registry = append(registry, &q)
	return registry[q.id]
}

// Quirk is a registered quirk with values of type T. Quirks are package
// variables, registered before main: in quirks.go of this package, or in the
// driver that they are for.
type Quirk[T ~bool | ~int | ~uint8] struct{ info *QuirkInfo }

// NewBoolQuirk registers a quirk that is true or false.
func NewBoolQuirk(info QuirkInfo, def bool) Quirk[bool] {
	info.Type, info.Default = "bool", strconv.FormatBool(def)
	return Quirk[bool]{register(info)}
}

// NewIntQuirk registers a quirk that is a number from info.Min to info.Max.
func NewIntQuirk(info QuirkInfo, def int) Quirk[int] {
	info.Type, info.Default = "int", strconv.Itoa(def)
	return Quirk[int]{register(info)}
}

// NewChoiceQuirk registers a quirk that is one of info.Choices; the value of T is
// the index.
func NewChoiceQuirk[T ~uint8](info QuirkInfo, def T) Quirk[T] {
	info.Type, info.Default = strings.Join(info.Choices, "|"), info.Choices[def]
	return Quirk[T]{register(info)}
}

// Info describes the quirk.
func (q Quirk[T]) Info() *QuirkInfo { return q.info }

// Is declares that devices which match when (all, if it is the zero Match) have
// value v. The reference says how that is known.
func (q Quirk[T]) Is(v T, when Match, reference string) Declaration {
	return Declaration{Quirk: q.info.Name, Value: q.format(v), When: when, Reference: reference}
}

func (q Quirk[T]) format(v T) string {
	switch v := reflect.ValueOf(v); v.Kind() {
	case reflect.Bool:
		return strconv.FormatBool(v.Bool())
	case reflect.Int:
		return strconv.FormatInt(v.Int(), 10)
	default:
		return q.info.Choices[v.Uint()]
	}
}

// Get is the quirk's effective value. It may be called by any goroutine and
// follows changes; read it once
// at Attach or Start, not per packet.
func (q Quirk[T]) Get(s *QuirkSet) T {
	n := s.load(q.info)
	var t T
	switch v := reflect.ValueOf(&t).Elem(); v.Kind() {
	case reflect.Bool:
		v.SetBool(n != 0)
	case reflect.Int:
		v.SetInt(n)
	default:
		v.SetUint(uint64(n))
	}
	return t
}

// Declaration is a driver's statement that a quirk has a value on some devices.
type Declaration struct {
	Quirk     string
	Value     string
	When      Match
	Reference string
}

// Match is a predicate over a device. Zero fields match everything. It is data,
// so that nicd can evaluate it again when link or mode change and `explain` can
// print it.
type Match struct {
	Device                   uint16 // PCI device id
	MinRevision, MaxRevision int    // of the device interface, Info.Revision
	Mode                     string // Info.Mode, such as "passthrough"
	LinkBelow                int    // link speed below so many Mbit/s
}

// QuirkSet holds the effective value of every quirk for one device.
type QuirkSet struct {
	values []atomic.Int64
}

// NewQuirkSet makes a set with every quirk at its default.
func NewQuirkSet() *QuirkSet {
	s := &QuirkSet{values: make([]atomic.Int64, len(registry))}
	for _, q := range registry {
		n, _ := q.parse(q.Default)
		s.values[q.id].Store(n)
	}
	return s
}

// Set changes the value of the quirk of a name.
func (s *QuirkSet) Set(name, value string) error {
	q := LookupQuirk(name)
	if q == nil {
		return fmt.Errorf("no quirk %q", name)
	}
	n, err := q.parse(value)
	if err != nil {
		return err
	}
	s.values[q.id].Store(n)
	return nil
}

func (s *QuirkSet) load(q *QuirkInfo) int64 { return s.values[q.id].Load() }
