// Command mutants deletes one rule of lro, gso or internal/checksum at a time and checks that the tests notice.
//
// It lives beside the packages that it mutates and knows their text: each mutant is a replacement of a piece of source
// that must occur exactly once. Sources are not touched; the go command gets the changed file through an overlay. A
// mutant that survives, that does not compile, or whose text is no longer there is an error, and the exit status is 1.
//
// Run it in the root of the module: go run ./internal/mutants [-run text] [-n]
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// mutant is one deleted rule.
type mutant struct {
	file     string
	rule     string // what is gone
	old, new string
}

func main() {
	only := flag.String("run", "", "run only mutants whose file or rule contains one of these texts, separated by |")
	dry := flag.Bool("n", false, "only check that each mutant's text is there, once")
	flag.Parse()
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
	failed := runAll(dir, *only, *dry)
	os.RemoveAll(dir)
	if failed {
		os.Exit(1)
	}
}

// runAll runs the mutants, prints a line for each, and reports whether one was not killed.
func runAll(dir, only string, dry bool) (failed bool) {
	killed, total := 0, 0
	for i, m := range mutants {
		if !wanted(m, only) {
			continue
		}
		total++
		start := time.Now()
		by, err := kill(dir, m, dry)
		if err != nil {
			failed = true
			fmt.Printf("%2d  %-9s %-22s %s: %v\n", i+1, "ERROR", m.file, m.rule, err)
			continue
		}
		if dry {
			fmt.Printf("%2d  %-9s %-22s %s\n", i+1, "found", m.file, m.rule)
			continue
		}
		killed++
		fmt.Printf("%2d  %-9s %-22s %s (%s, %.1f s)\n", i+1, "killed", m.file, m.rule, by, time.Since(start).Seconds())
	}
	if dry {
		fmt.Printf("%d mutants, none of them run\n", total)
		return failed
	}
	fmt.Printf("%d of %d mutants killed\n", killed, total)
	return failed
}

// wanted reports whether the mutant is one of those asked for.
func wanted(m mutant, only string) bool {
	for text := range strings.SplitSeq(only, "|") {
		if strings.Contains(m.file+" "+m.rule, text) {
			return true
		}
	}
	return false
}

// kill returns the name of the test that fails with the mutant.
func kill(dir string, m mutant, dry bool) (string, error) {
	source, err := os.ReadFile(m.file)
	if err != nil {
		return "", err
	}
	if n := bytes.Count(source, []byte(m.old)); n != 1 {
		return "", fmt.Errorf("its text occurs %d times", n)
	}
	if dry {
		return "not run", nil
	}
	changed := filepath.Join(dir, "changed.go")
	if err := os.WriteFile(changed, bytes.Replace(source, []byte(m.old), []byte(m.new), 1), 0o600); err != nil {
		return "", err
	}
	original, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		return "", err
	}
	return test(file, filepath.Dir(m.file))
}

var (
	failLine = regexp.MustCompile(`--- FAIL: (\S+)`)
	panicked = regexp.MustCompile(`(?m)^panic: .*|^fatal error: .*`)
)

// test runs the tests of the mutated package and, if they pass, those of the packages that use it.
func test(overlay, dir string) (string, error) {
	packages := []string{"./lro", "./gso", "./internal/checksum"}
	for _, p := range append([]string{"./" + dir}, packages...) {
		c := exec.Command("go", "test", "-overlay", overlay, "-count=1", "-failfast", "-vet=off", "-timeout=120s", p)
		c.Env = append(os.Environ(), "NICD_NO_TAP=1", "RAPID_NOFAILFILE=1", "RAPID_CHECKS=300", "RAPID_SHRINKTIME=100ms") // the kernel is no judge of mutants
		output, err := c.CombinedOutput()
		if err == nil {
			continue
		}
		if bytes.Contains(output, []byte("[build failed]")) || bytes.Contains(output, []byte("[setup failed]")) {
			return "", fmt.Errorf("does not build:\n%s", output)
		}
		if found := failLine.FindAllSubmatch(output, -1); found != nil {
			return string(found[len(found)-1][1]), nil // the innermost one
		}
		if panicked.Match(output) {
			return "panic", nil
		}
		return "", fmt.Errorf("the tests did not run:\n%s", output)
	}
	return "", fmt.Errorf("SURVIVED")
}
