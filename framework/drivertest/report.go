package drivertest

import "fmt"

// Status is how a check ended.
type Status string

// Statuses.
const (
	Passed        Status = "passed"
	Failed        Status = "failed"
	NotApplicable Status = "not applicable"
)

// Report is what Check found. Its JSON has stable names.
type Report struct {
	Bench         string    `json:"bench"`
	Driver        string    `json:"driver"`
	DriverVersion string    `json:"driver_version"`
	Model         string    `json:"model"`    // as the driver found it
	Revision      int       `json:"revision"` // likewise
	Passed        int       `json:"passed"`
	Failed        int       `json:"failed"`
	NotApplicable int       `json:"not_applicable"`
	Seconds       float64   `json:"seconds"`
	Checks        []Result  `json:"checks"`
	Quirks        []Finding `json:"quirks"`
}

// Ok tells whether no check failed and some passed.
func (r *Report) Ok() bool { return r.Failed == 0 && r.Passed > 0 }

// Result is how one check ended.
type Result struct {
	Name     string   `json:"name"` // "category.what"
	Doc      string   `json:"doc"`  // what holds if it passes
	Status   Status   `json:"status"`
	Reason   string   `json:"reason"`   // if not applicable
	Problems []string `json:"problems"` // if failed
	Log      []string `json:"log"`
	Seconds  float64  `json:"seconds"`
}

// Agreement is what the linter thinks of a declaration.
type Agreement string

// Agreements.
const (
	Agrees      Agreement = "agrees"
	Contradicts Agreement = "contradicts"
	NotSeen     Agreement = "not seen" // nothing was seen that bears on it
)

// Finding is what the linter says of one quirk: what is declared (by the driver,
// or by default) and what the device was seen to do.
type Finding struct {
	Quirk     string    `json:"quirk"`
	Declared  string    `json:"declared"`
	Because   string    `json:"because"` // who declared it
	Agreement Agreement `json:"agreement"`
	Seen      string    `json:"seen"` // or why nothing could be
}

func (f Finding) String() string {
	return fmt.Sprintf("%s is declared %s; seen: %s", f.Quirk, f.Declared, f.Seen)
}

func (r *Report) add(res Result) {
	r.Checks = append(r.Checks, res)
	switch res.Status {
	case Passed:
		r.Passed++
	case Failed:
		r.Failed++
	default:
		r.NotApplicable++
	}
}
