// Testsum reads what `go test -json` prints and says what failed, what was
// skipped and why, and how many tests ran. Its exit status is that of the tests.
//
// A test that failed beside others is run once more, alone: many tests here talk
// to kernels, guests and processes, and share two processors. If it passes then
// it is listed as unsteady, for somebody to look at, and counts as passed. A data
// race or a panic is not forgiven.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// event is a line of `go test -json` (see go doc test2json).
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

type key struct{ pkg, test string }

// tally is what was read so far.
type tally struct {
	output          map[key][]string
	failed, skipped []string
	again           map[string]map[string]bool // package, test: run once more
	passed          int
	broken          bool
}

func main() {
	t := tally{output: map[key][]string{}, again: map[string]map[string]bool{}}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Println(lines.Text()) // the compiler, most likely
			continue
		}
		t.add(e)
	}
	if !t.broken && len(t.failed) > 0 && runAlone(t.again) {
		for _, f := range t.failed {
			fmt.Println("unsteady", f, "(failed beside others, passed alone)")
		}
		t.passed, t.failed = t.passed+len(t.failed), nil
	}
	slices.Sort(t.skipped)
	for _, s := range t.skipped {
		fmt.Println("skip ", s)
	}
	for _, f := range t.failed {
		fmt.Println("failed", f)
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", t.passed, len(t.failed), len(t.skipped))
	if t.broken || len(t.failed) > 0 || t.passed == 0 || lines.Err() != nil {
		os.Exit(1)
	}
}

func (t *tally) add(e event) {
	k := key{e.Package, e.Test}
	switch e.Action {
	case "output", "build-output":
		t.output[k] = append(t.output[k], e.Output)
		return
	case "build-fail":
		t.broken = true
		fmt.Print(strings.Join(t.output[k], ""))
		return
	case "pass":
		if e.Test == "" {
			fmt.Printf("ok    %s  %.1fs\n", e.Package, e.Elapsed)
		} else {
			t.passed++
		}
	case "skip":
		if e.Test != "" {
			t.skipped = append(t.skipped, fmt.Sprintf("%s %s: %s", e.Package, e.Test, reason(t.output[k])))
		}
	case "fail":
		t.fail(e, strings.Join(t.output[k], ""))
	default:
		return
	}
	delete(t.output, k)
}

// fail takes a failure, of a test or of a package, with what it printed.
func (t *tally) fail(e event, text string) {
	switch {
	case e.Test != "":
		t.failed = append(t.failed, e.Package+" "+e.Test)
		if t.again[e.Package] == nil {
			t.again[e.Package] = map[string]bool{}
		}
		top, _, _ := strings.Cut(e.Test, "/")
		t.again[e.Package][top] = true
		t.broken = t.broken || unforgivable(text)
	case t.again[e.Package] == nil || unforgivable(text):
		t.broken = true // the package failed, and not for a test
	}
	fmt.Printf("FAIL  %s %s\n%s", e.Package, e.Test, text)
}

func unforgivable(output string) bool {
	return strings.Contains(output, "DATA RACE") || strings.Contains(output, "panic:") || strings.Contains(output, "SIGSEGV")
}

// runAlone runs tests once more, package by package, and tells whether all
// passed. More than a few failures are no accident.
func runAlone(tests map[string]map[string]bool) bool {
	const few = 3
	n := 0
	for _, names := range tests {
		n += len(names)
	}
	if n > few {
		return false
	}
	for pkg, names := range tests {
		for name := range names {
			fmt.Println("again ", pkg, name)
			cmd := exec.Command("go", "test", "-race", "-count=1", "-timeout=10m", "-run", "^"+name+"$", pkg)
			cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
			if cmd.Run() != nil {
				return false
			}
		}
	}
	return true
}

// reason is the line in which a test said why it skipped.
func reason(output []string) string {
	for _, line := range slices.Backward(output) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "---") && !strings.HasPrefix(line, "===") {
			return line
		}
	}
	return "no reason given"
}
