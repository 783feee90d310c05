package drivertest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"
)

// checks are all, by category.
func checks() []*check {
	return slices.Concat(
		attachChecks, startChecks, stopChecks, receiveChecks, starveChecks, transmitChecks, tsoChecks, checksumChecks,
		vlanChecks, filterChecks, rssChecks, interruptChecks, linkChecks, troubleChecks, lroChecks, settingChecks,
		slotChecks, counterChecks, quirkChecks,
	)
}

// Describe lists all checks by name, with the sentence that says what holds.
func Describe() (all []Result) {
	for _, k := range checks() {
		all = append(all, Result{Name: k.name, Doc: k.doc})
	}
	return all
}

// Check runs the checks, one after another, and reports. When ctx ends, the check
// that runs ends as a failed one and no other begins.
func Check(ctx context.Context, b Bench) Report {
	begin := time.Now()
	r := newReport(&b)
	l := newLinter(&b)
	for _, k := range checks() {
		if b.selects(k) && ctx.Err() == nil {
			res := runCheck(ctx, &b, k, l)
			r.add(res)
			if b.Progress != nil {
				b.Progress(res)
			}
		}
	}
	if ctx.Err() != nil {
		r.add(Result{Name: "run.complete", Doc: "All checks were run.", Status: Failed,
			Problems: []string{ctx.Err().Error()}, Log: []string{}})
	}
	r.Model, r.Revision = l.model, l.revision
	r.Quirks = l.findings()
	r.Seconds = time.Since(begin).Seconds()
	return r
}

func newReport(b *Bench) Report {
	d := b.Driver.Describe()
	return Report{Bench: b.Name, Driver: d.Name, DriverVersion: d.Version, Checks: []Result{}, Quirks: []Finding{}}
}

func (b *Bench) selects(k *check) bool { return b.Select == nil || b.Select(k.name) }

// Run runs each check as a subtest of t. In short mode it takes fewer turns.
func Run(t *testing.T, b Bench) {
	b.Quick = b.Quick || testing.Short()
	l := newLinter(&b)
	for _, k := range checks() {
		if !b.selects(k) {
			continue
		}
		t.Run(strings.ReplaceAll(k.name, ".", "/"), func(t *testing.T) {
			res := runCheck(t.Context(), &b, k, l)
			for _, line := range res.Log {
				t.Log(line)
			}
			for _, p := range res.Problems {
				t.Errorf("%s (%s)", p, k.doc)
			}
			if b.Progress != nil {
				b.Progress(res)
			}
			if res.Status == NotApplicable {
				t.Skip("not applicable: " + res.Reason)
			}
		})
	}
}
