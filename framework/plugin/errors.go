package plugin

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"unicode"
)

// Why a plugin could not be started or used. An [Error] wraps one of them.
var (
	ErrMissing       = errors.New("no such plugin")
	ErrNotExecutable = errors.New("not executable")
	ErrChecksum      = errors.New("wrong sha256")
	ErrNotPlugin     = errors.New("not a nicd plugin")
	ErrVersion       = errors.New("wrong protocol version")
	ErrExited        = errors.New("exited")
	ErrTimeout       = errors.New("no answer in time")
	ErrKilled        = errors.New("was killed")
)

// Error is a failure of a plugin: one line that says what, where and what to do.
type Error struct {
	Plugin string // its path, or "bundled vmxnet3"
	PID    int    // 0 before it ran
	Op     string // what failed: "start", "attach"; "" if it died by itself
	Err    error  // one of the sentinels, or what the driver reported
	Detail string // what was found, and what to do about it
}

func (e *Error) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "plugin %s", e.Plugin)
	if e.PID != 0 {
		fmt.Fprintf(&s, " (pid %d)", e.PID)
	}
	if e.Op != "" {
		fmt.Fprintf(&s, ": %s", e.Op)
	}
	fmt.Fprintf(&s, ": %v", e.Err)
	if e.Detail != "" {
		fmt.Fprintf(&s, ": %s", e.Detail)
	}
	return oneLine(s.String())
}

func (e *Error) Unwrap() error { return e.Err }

// oneLine makes one printable line of what may be an untrusted process's words.
func oneLine(s string) string {
	return printable(strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), " "))
}

// printable replaces what a terminal would obey.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

// exitDetail says how a process ended and what it said last.
func exitDetail(state *os.ProcessState, lastLine string) string {
	how := "unknown how"
	if state != nil {
		how = state.String()
	}
	if lastLine == "" {
		return how + ", and it said nothing"
	}
	return fmt.Sprintf("%s; it last said %q", how, lastLine)
}

// maxWords is how much of what a plugin says of one thing is kept, in bytes.
const maxWords = 1000

// shorten cuts an untrusted process's words to a length that a line can have.
func shorten(s string) string {
	if len(s) <= maxWords {
		return s
	}
	return strings.ToValidUTF8(s[:maxWords], "") + "..."
}
