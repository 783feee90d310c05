package console

import (
	"encoding/json"
	"fmt"
	"io"

	"nicd/framework/drivertest"
)

// Conformance prints what the conformance kit found about one driver on one device.
func Conformance(w io.Writer, r *drivertest.Report) {
	fmt.Fprintf(w, "%s: %s revision %d\n", r.Bench, r.Model, r.Revision)
	t := newTable("CHECK", "RESULT", ">SECONDS", "WHAT HOLDS, OR WHY NOT")
	for _, c := range r.Checks {
		t.row(c.Name, c.Status, fmt.Sprintf("%.2f", c.Seconds), explanation(&c))
	}
	t.print(w, nil)
	fmt.Fprintln(w)
	t = newTable("QUIRK", "DECLARED", "RESULT", "WHAT THE DEVICE WAS SEEN TO DO")
	for _, f := range r.Quirks {
		t.row(f.Quirk, f.Declared, f.Agreement, f.Seen)
	}
	t.print(w, nil)
	fmt.Fprintf(w, "\n%s: %s\n\n", r.Bench, ConformanceSummary(r))
}

func explanation(c *drivertest.Result) string {
	switch {
	case c.Status == drivertest.Failed && len(c.Problems) > 0:
		return c.Problems[0]
	case c.Status == drivertest.NotApplicable:
		return c.Reason
	}
	return c.Doc
}

// ConformanceSummary is a report in a few words.
func ConformanceSummary(r *drivertest.Report) string {
	return fmt.Sprintf("%d checks passed, %d failed, %d not applicable, in %.1f s", r.Passed, r.Failed, r.NotApplicable, r.Seconds)
}

// ConformanceChecks lists checks.
func ConformanceChecks(w io.Writer, checks []drivertest.Result) {
	t := newTable("CHECK", "WHAT HOLDS")
	for _, c := range checks {
		t.row(c.Name, c.Doc)
	}
	t.print(w, nil)
}

// ConformanceJSON prints reports as JSON: an object with the list of them.
func ConformanceJSON(w io.Writer, reports []drivertest.Report) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(struct {
		Reports []drivertest.Report `json:"reports"`
	}{reports})
}
