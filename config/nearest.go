package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/agext/levenshtein"
)

// nearest is the known name that someone who wrote name may have meant, "" if
// none is near: few letters differ, or it begins with name.
func nearest(name string, known []string) string {
	best, least := "", max(2, len(name)/3)+1
	for _, k := range known {
		d := levenshtein.Distance(strings.ToLower(name), strings.ToLower(k), nil)
		if len(name) > 2 && strings.HasPrefix(k, name) {
			d = min(d, 2)
		}
		if d < least {
			best, least = k, d
		}
	}
	return best
}

// didYouMean is the end of a message about an unknown name: the nearest known
// one, or if none is near all of them, if there are few.
func didYouMean(name string, known []string) string {
	switch n := nearest(name, known); {
	case n != "":
		return fmt.Sprintf("; did you mean %q?", n)
	case len(known) == 0:
		return "; there is none"
	case len(known) > 20:
		return ""
	}
	known = slices.Clone(known)
	slices.Sort(known)
	return "; known: " + strings.Join(known, ", ")
}
