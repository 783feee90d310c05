package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/agext/levenshtein"
)

// didYouMean is the end of a message about an unknown name: the nearest known
// one if there is one near, otherwise all, if there are few.
func didYouMean(name string, known []string) string {
	best, least := "", max(2, len(name)/3)+1
	for _, k := range known {
		if d := levenshtein.Distance(strings.ToLower(name), strings.ToLower(k), nil); d < least {
			best, least = k, d
		}
	}
	switch {
	case best != "":
		return fmt.Sprintf("; did you mean %q?", best)
	case len(known) == 0:
		return "; there is none"
	case len(known) > 16:
		return ""
	}
	known = slices.Clone(known)
	slices.Sort(known)
	return "; known: " + strings.Join(known, ", ")
}
