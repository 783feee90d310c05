package config

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Problem is one thing that is wrong in a config.
type Problem struct {
	File         string
	Line, Column int    // from 1; 0 if the problem has no place
	Source       string // the line, without its end
	Text         string // what is wrong and what would be right, one line
}

// Error is one line: "nicd.hcl:12: unknown attribute ...".
func (p Problem) Error() string {
	if p.Line == 0 {
		return p.File + ": " + p.Text
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Text)
}

// Detail is Error and below it the source line with a mark.
func (p Problem) Detail() string {
	if p.Line == 0 {
		return p.Error()
	}
	mark := strings.Map(func(r rune) rune { // tabs keep the mark below its column
		if r == '\t' {
			return r
		}
		return ' '
	}, p.Source[:min(len(p.Source), max(p.Column-1, 0))])
	return fmt.Sprintf("%s\n  %s\n  %s^", p.Error(), strings.Map(printed, p.Source), mark)
}

// printed replaces what a terminal would obey.
func printed(r rune) rune {
	if r == '\t' || unicode.IsPrint(r) {
		return r
	}
	return '?'
}

// Diagnostics are all problems of a config, at least one, in the order of the
// file.
type Diagnostics []Problem

// Error is one line: the first problem, and how many there are besides.
func (d Diagnostics) Error() string {
	switch len(d) {
	case 0:
		return "no problem"
	case 1:
		return d[0].Error()
	}
	return fmt.Sprintf("%s (and %d more)", d[0].Error(), len(d)-1)
}

// Detail shows every problem with its source line.
func (d Diagnostics) Detail() string {
	var all []string
	for _, p := range d {
		all = append(all, p.Detail())
	}
	return strings.Join(all, "\n")
}

// sorted has the problems in the order of the file, each once.
func (d Diagnostics) sorted() Diagnostics {
	slices.SortStableFunc(d, func(a, b Problem) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		if a.Column != b.Column {
			return a.Column - b.Column
		}
		return strings.Compare(a.Text, b.Text)
	})
	return slices.Compact(d)
}
