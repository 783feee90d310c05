package vmxnet3

import (
	"fmt"
	"slices"
	"strings"
)

// The variations that are a choice have words, by which a config names them.

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *LROStyle) UnmarshalText(text []byte) error {
	return choose(s, text, "by-revision", "length-only", "no-mss", "single", "no-count")
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *RxDoorbells) UnmarshalText(text []byte) error {
	return choose(d, text, "starved", "always", "never")
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (f *InnerFlags) UnmarshalText(text []byte) error {
	return choose(f, text, "never", "bit-13", "bit-12")
}

// choose sets v to the index of text among words.
func choose[T ~uint8](v *T, text []byte, words ...string) error {
	i := slices.Index(words, string(text))
	if i < 0 {
		return fmt.Errorf("one of %s", strings.Join(words, ", "))
	}
	*v = T(i)
	return nil
}
