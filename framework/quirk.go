package framework

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// Errors of quirks, wrapped with the quirk and what was wrong.
var (
	// ErrUnknownQuirk: nobody registered a quirk of that name.
	ErrUnknownQuirk = errors.New("unknown quirk")
	// ErrQuirkValue: the quirk can't have that value.
	ErrQuirkValue = errors.New("wrong value for a quirk")
	// ErrForeignQuirk: the quirk is another driver's own.
	ErrForeignQuirk = errors.New("quirk of another driver")
	// ErrUnsafeQuirk: an operator set an unsafe quirk without accepting that.
	ErrUnsafeQuirk = errors.New("unsafe quirk")
)

// QuirkInfo describes a quirk: a typed way in which devices differ. The registry
// of them is what config, the command line's listing, the documentation and
// the conformance kit's linter are made from.
type QuirkInfo struct {
	Name      string   // "lro-owner": lower-case words joined by dashes
	Type      string   // "bool", "int" or the choices joined by |
	Choices   []string // nil for bool and int
	Default   string
	Doc       string // one sentence: what it does
	Reference string // where it is known from
	Min, Max  int    // for int
	Driver    string // the driver it is for, "" for all
	// Live: another value takes effect with the next plan, without restarting
	// the device. Others are read when the device starts.
	Live bool
	// Unsafe: a value that is wrong for the device loses packets or throughput
	// without a word. Drivers declare such quirks; operators may set them only
	// where the config says that it accepts that, see QuirkSources.Unsafe.
	Unsafe bool
	id     int
}

var registry []*QuirkInfo

// Quirks are all registered quirks, by name. The caller must not change them.
func Quirks() []*QuirkInfo {
	all := slices.Clone(registry)
	slices.SortFunc(all, func(a, b *QuirkInfo) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// QuirksOf are the registered quirks that mean something to driver, its own and
// the framework's, by name: what a plugin tells a host that it knows.
func QuirksOf(driver string) []QuirkInfo {
	var known []QuirkInfo
	for _, q := range Quirks() {
		if q.For(driver) {
			known = append(known, *q)
		}
	}
	return known
}

// LookupQuirk returns the quirk of a name, nil if there is none.
func LookupQuirk(name string) *QuirkInfo {
	i := slices.IndexFunc(registry, func(q *QuirkInfo) bool { return q.Name == name })
	if i < 0 {
		return nil
	}
	return registry[i]
}

// For tells whether the quirk means anything to a driver.
func (q *QuirkInfo) For(driver string) bool { return q.Driver == "" || q.Driver == driver }

// Check tells whether value is one that the quirk can have; if not, the error
// says which are and wraps ErrQuirkValue.
func (q *QuirkInfo) Check(value string) error {
	_, err := q.parse(value)
	return err
}

// Values says in words what values the quirk can have.
func (q *QuirkInfo) Values() string {
	switch {
	case q.Choices != nil:
		return "one of " + strings.Join(q.Choices, ", ")
	case q.Type == "bool":
		return "true or false"
	}
	return fmt.Sprintf("a number from %d to %d", q.Min, q.Max)
}

func (q *QuirkInfo) parse(value string) (int64, error) {
	switch {
	case q.Choices != nil:
		if i := slices.Index(q.Choices, value); i >= 0 {
			return int64(i), nil
		}
	case q.Type == "bool":
		if i := slices.Index([]string{"false", "true"}, value); i >= 0 {
			return int64(i), nil
		}
	default:
		n, err := strconv.Atoi(value)
		if err == nil && n >= q.Min && n <= q.Max && strconv.Itoa(n) == value {
			return int64(n), nil
		}
	}
	return 0, fmt.Errorf("%w: %s is %s, not %q", ErrQuirkValue, q.Name, q.Values(), value)
}

// validate finds what a listing or a config could not cope with.
func (q *QuirkInfo) validate() error {
	switch {
	case !quirkName(q.Name):
		return fmt.Errorf("quirk name %q is not words joined by dashes", q.Name)
	case q.Doc == "":
		return fmt.Errorf("quirk %s has no doc", q.Name)
	case q.Reference == "":
		return fmt.Errorf("quirk %s has no reference", q.Name)
	case q.Type == "int" && q.Min >= q.Max:
		return fmt.Errorf("quirk %s has range %d to %d", q.Name, q.Min, q.Max)
	case q.Type != "int" && q.Type != "bool" && len(q.Choices) < 2:
		return fmt.Errorf("quirk %s has no choices", q.Name)
	}
	return q.Check(q.Default)
}

func quirkName(s string) bool {
	for word := range strings.SplitSeq(s, "-") {
		if word == "" || strings.Trim(word, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
			return false
		}
	}
	return s[0] >= 'a'
}

// register panics on a bad quirk: it is a mistake in a package variable, found
// by the first run of anything.
func register(q QuirkInfo) *QuirkInfo {
	if LookupQuirk(q.Name) != nil {
		panic("framework: quirk " + q.Name + " registered twice")
	}
	if err := q.validate(); err != nil {
		panic("framework: " + err.Error())
	}
	q.id = len(registry)
	registry = append(registry, &q)
	return &q
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
// value v. The reference says how that is known. A value that the quirk can't
// have panics.
func (q Quirk[T]) Is(v T, when Match, reference string) Declaration {
	d := Declaration{Quirk: q.info.Name, Value: q.format(v), When: when, Reference: reference}
	if err := q.info.Check(d.Value); err != nil {
		panic("framework: " + err.Error())
	}
	return d
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

// Get is the quirk's effective value. Any goroutine may call it and it follows
// changes; read it once at Attach or Start, not per packet.
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

// QuirkSet holds the effective value of every quirk for one device. Any
// goroutine may use it.
type QuirkSet struct {
	values []atomic.Int64
}

// NewQuirkSet makes a set with every quirk at its default. All quirks are
// registered by then.
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
	q, n, err := parseQuirk(name, value)
	if err != nil {
		return err
	}
	s.values[q.id].Store(n)
	return nil
}

// SetAll changes many values, or none if one of them is wrong.
func (s *QuirkSet) SetAll(values map[string]string) error {
	for name, value := range values {
		if _, _, err := parseQuirk(name, value); err != nil {
			return err
		}
	}
	for name, value := range values {
		q, n, _ := parseQuirk(name, value)
		s.values[q.id].Store(n)
	}
	return nil
}

func parseQuirk(name, value string) (*QuirkInfo, int64, error) {
	q := LookupQuirk(name)
	if q == nil {
		return nil, 0, fmt.Errorf("%w: %s", ErrUnknownQuirk, name)
	}
	n, err := q.parse(value)
	return q, n, err
}

func (s *QuirkSet) load(q *QuirkInfo) int64 { return s.values[q.id].Load() }
