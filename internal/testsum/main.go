// Testsum reads what `go test -json` prints and says what failed, what was
// skipped and why, and how many tests ran. Its exit status is that of the tests.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// event is a line of `go test -json` (see go doc test2json).
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

type key struct{ pkg, test string }

func main() {
	output := map[key][]string{}
	var failed, skipped []string
	passed, broken := 0, false
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Println(lines.Text()) // the compiler, most likely
			continue
		}
		k := key{e.Package, e.Test}
		switch e.Action {
		case "output", "build-output":
			output[k] = append(output[k], e.Output)
		case "build-fail":
			broken = true
			fmt.Print(strings.Join(output[k], ""))
		case "pass":
			if e.Test == "" {
				fmt.Printf("ok    %s  %.1fs\n", e.Package, e.Elapsed)
			} else {
				passed++
			}
			delete(output, k)
		case "skip":
			if e.Test != "" {
				skipped = append(skipped, fmt.Sprintf("%s %s: %s", e.Package, e.Test, reason(output[k])))
			}
			delete(output, k)
		case "fail":
			broken = true
			if e.Test != "" {
				failed = append(failed, e.Package+" "+e.Test)
			}
			fmt.Printf("FAIL  %s %s\n%s", e.Package, e.Test, strings.Join(output[k], ""))
			delete(output, k)
		}
	}
	slices.Sort(skipped)
	for _, s := range skipped {
		fmt.Println("skip ", s)
	}
	for _, f := range failed {
		fmt.Println("failed", f)
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", passed, len(failed), len(skipped))
	if broken || passed == 0 || lines.Err() != nil {
		os.Exit(1)
	}
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
