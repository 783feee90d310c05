package drivertest

import (
	"fmt"
	"strings"
	"sync"

	"nicd/framework"
)

// linter collects what a driver declares and what its device was seen to do. Any
// goroutine may use it.
type linter struct {
	bench *Bench

	mu       sync.Mutex
	model    string
	revision int
	info     *framework.Info // as attach found it
	device   uint16
	seen     map[string]Finding
}

func newLinter(b *Bench) *linter { return &linter{bench: b, seen: map[string]Finding{}} }

// found keeps what the driver found.
func (l *linter) found(i *framework.Info) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.model, l.revision, l.info = i.Model, i.Revision, i
}

// resolution is what is declared for a device.
func (l *linter) resolution(device uint16, info framework.Info) *framework.Resolution {
	l.mu.Lock()
	l.device = device
	l.mu.Unlock()
	d := l.bench.Driver.Describe()
	var settings []framework.QuirkSetting
	for name, value := range l.bench.Quirks {
		settings = append(settings, framework.QuirkSetting{Name: name, Value: value, Origin: "bench"})
	}
	res, err := framework.ResolveQuirks(framework.QuirkSources{
		Driver: d.Name, Declarations: d.Quirks, InterfaceConfig: settings,
		Facts: framework.FactsOf(device, info, framework.Link{}),
	})
	if err != nil {
		return nil // attach.description says what is wrong
	}
	return res
}

// invisible says of quirks why nothing can be seen of them.
var invisible = map[string]string{
	framework.ReordersRxSlotsQuirk.Info().Name: "no completion tells a descriptor that is passed over from one that comes later",
	framework.BellDelayQuirk.Info().Name:       "it is the engine that waits; a device can't tell",
	framework.TxSentinelQuirk.Info().Name:      "no device here reports packets before it has fetched them",
	framework.TSOMinLinkQuirk.Info().Name:      "the link has one speed only",
	framework.ResetMethodQuirk.Info().Name:     "no reset was looked at",
	framework.TxWithinPageQuirk.Info().Name:    "the kit's frames are not sent from pages that only an IOMMU puts side by side",
}

// findings are what the linter says of every quirk that means something to the
// driver, by name.
func (l *linter) findings() []Finding {
	var info framework.Info
	if l.info != nil {
		info = *l.info
	}
	res := l.resolution(l.device, info)
	all := []Finding{}
	for _, q := range framework.Quirks() {
		if !q.For(l.bench.Driver.Describe().Name) {
			continue
		}
		f, ok := l.seen[q.Name]
		if !ok {
			f = Finding{Agreement: NotSeen, Seen: "nothing that bears on it"}
			switch why := invisible[q.Name]; {
			case why != "":
				f.Seen = why
			case strings.HasPrefix(q.Name, "unsafe-"):
				f.Seen = "it is for experiments: no device is like that"
			case q.Driver != "":
				f.Seen = "it is the driver's own: the kit does not know what to look for"
			}
		}
		f.Quirk = q.Name
		if v, ok := res.Lookup(q.Name); res != nil && ok {
			f.Declared, f.Because = v.Value, v.Because
		}
		all = append(all, f)
	}
	return all
}

// see records what was seen that bears on a quirk. A contradiction fails the
// check, and stays whatever is seen later.
func (t *c) see(q *framework.QuirkInfo, declared string, a Agreement, format string, args ...any) {
	f := Finding{Quirk: q.Name, Declared: declared, Agreement: a, Seen: fmt.Sprintf(format, args...)}
	t.lint.mu.Lock()
	if was, ok := t.lint.seen[q.Name]; !ok || was.Agreement != Contradicts && (a != NotSeen || was.Agreement == NotSeen) {
		t.lint.seen[q.Name] = f
	}
	t.lint.mu.Unlock()
	if a == Contradicts {
		t.Errorf("%v", f)
	}
	t.Logf("%s: %v", a, f)
}

// agrees is Agrees or Contradicts.
func agrees(ok bool) Agreement {
	if ok {
		return Agrees
	}
	return Contradicts
}
