package framework

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"nicd/bus"
)

// ErrInfo: an Info or a Description says what no device or driver can mean.
var ErrInfo = errors.New("driver says nonsense of its device")

// Limits of what an Info can say, far from what devices have.
const (
	maxInfoQueues   = 64 // a Cause has so many bits
	maxInfoRing     = 1 << 20
	maxInfoRings    = 16
	maxInfoMTU      = 1 << 16
	maxInfoVectors  = 2048 // MSI-X's
	maxInfoChoices  = 8
	maxInfoCounters = 1024
	maxInfoText     = 512
)

// Check says what in an Info makes no sense, for whoever gets it from a driver in
// another process and is going to count on it.
func (i *Info) Check() error {
	for _, f := range []struct {
		what            string
		value, min, max int
	}{
		{"receive queues", i.MaxRxQueues, 1, maxInfoQueues},
		{"transmit queues", i.MaxTxQueues, 1, maxInfoQueues},
		{"rings of a receive queue", i.RxRings, 0, maxInfoRings},
		{"largest MTU", i.MaxMTU, 1, maxInfoMTU},
		{"smallest MTU", i.MinMTU, 0, i.MaxMTU},
		{"kinds of interrupt", len(i.Interrupts), 0, maxInfoChoices},
		{"counters", len(i.Counters), 0, maxInfoCounters},
	} {
		if f.value < f.min || f.value > f.max {
			return fmt.Errorf("%w: %s: %d, allowed are %d to %d", ErrInfo, f.what, f.value, f.min, f.max)
		}
	}
	for _, c := range i.Interrupts {
		if c.Kind > bus.MSIX || c.Vectors < 1 || c.Vectors > maxInfoVectors {
			return fmt.Errorf("%w: %d vectors of %v", ErrInfo, c.Vectors, c.Kind)
		}
	}
	if err := i.RxRing.check("receive"); err != nil {
		return err
	}
	if err := i.TxRing.check("transmit"); err != nil {
		return err
	}
	return i.checkTexts()
}

func (i *Info) checkTexts() error {
	if err := checkText("model", i.Model); err != nil {
		return err
	}
	if err := checkText("mode", i.Mode); err != nil {
		return err
	}
	for _, c := range i.Counters {
		if err := checkText("name of a counter", c.Name); err != nil {
			return err
		}
		if err := checkText("meaning of a counter", c.Doc); err != nil {
			return err
		}
	}
	return nil
}

// check says what makes no sense in a rule for rings of a kind.
func (r RingRule) check(what string) error {
	if r.Min < 1 || r.Max < r.Min || r.Max > maxInfoRing || r.Multiple < PowersOfTwo || r.Multiple > r.Max ||
		r.Default < r.Min || r.Default > r.Max ||
		r.Multiple == PowersOfTwo && !(r.Allows(r.Min) && r.Allows(r.Max) && r.Allows(r.Default)) {
		return fmt.Errorf("%w: %s rings of %d to %d descriptors in steps of %d, usually %d",
			ErrInfo, what, r.Min, r.Max, r.Multiple, r.Default)
	}
	return nil
}

// checkText refuses what would do something to a terminal, or fill it.
func checkText(what, s string) error {
	if len(s) > maxInfoText {
		return fmt.Errorf("%w: %s of %d bytes", ErrInfo, what, len(s))
	}
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("%w: %s %.60q is not printable", ErrInfo, what, s)
	}
	return nil
}

// Check says what in a Description makes no sense. Its quirks are judged when
// they are resolved.
func (d *Description) Check() error {
	if d.Name == "" {
		return fmt.Errorf("%w: it has no name", ErrInfo)
	}
	if err := checkText("name", d.Name); err != nil {
		return err
	}
	if err := checkText("version", d.Version); err != nil {
		return err
	}
	for _, id := range d.IDs {
		if err := checkText("name of a device", id.Name); err != nil {
			return err
		}
	}
	for _, q := range d.Quirks {
		for _, text := range []string{q.Quirk, q.Value, q.When.Mode, q.Reference} {
			if err := checkText("declaration of a quirk", text); err != nil {
				return err
			}
		}
	}
	return nil
}

// CheckWords says what in the words about a quirk makes no sense, for whoever gets
// them from a driver in another process and is going to print them.
func (q *QuirkInfo) CheckWords() error {
	for _, f := range []struct{ what, text string }{
		{"name", q.Name}, {"type", q.Type}, {"default", q.Default}, {"meaning", q.Doc}, {"reference", q.Reference}, {"driver", q.Driver},
	} {
		if err := checkText(f.what+" of a quirk", f.text); err != nil {
			return err
		}
	}
	for _, c := range q.Choices {
		if err := checkText("value of quirk "+q.Name, c); err != nil {
			return err
		}
	}
	return nil
}
