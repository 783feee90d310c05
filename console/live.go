package console

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"nicd/proto/adminpb"
)

// Live is the table that `nicd run` shows: on a terminal it is drawn over itself,
// elsewhere one follows another.
type Live struct {
	mu    sync.Mutex
	out   io.Writer
	width func() int // of the terminal; nil if there is none
	last  *adminpb.StatusReply
	drawn string // the table that is on the screen, at its bottom
}

// NewLive makes a live table. width tells the columns of the terminal that out is,
// 0 if it can't; nil is for what is no terminal, and gets neither emphasis nor
// cursor movements.
func NewLive(out io.Writer, width func() int) *Live { return &Live{out: out, width: width} }

// Update shows what happened since the last Update. The first shows what is. An
// error is the writer's.
func (l *Live) Update(s *adminpb.StatusReply) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b bytes.Buffer
	if l.last == nil {
		Status(&b, s)
		fmt.Fprintln(&b)
		l.last = s
		_, err := b.WriteTo(l.out)
		return err
	}
	interfaces, streams := Rates(l.last, s, s.UptimeSeconds-l.last.UptimeSeconds)
	l.last = s
	l.erase(&b)
	start := b.Len()
	fmt.Fprintf(&b, "up %s\n", (time.Duration(s.UptimeSeconds*10) * time.Second / 10).Truncate(time.Second))
	rates(&b, interfaces, streams, l.columns(), l.emphasis())
	reasons(&b, s)
	l.drawn = string(b.Bytes()[start:])
	if l.width == nil {
		b.WriteByte('\n')
	}
	_, err := b.WriteTo(l.out)
	return err
}

// Write puts log lines above the table, which the next Update draws again.
func (l *Live) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.erase(l.out)
	return l.out.Write(p)
}

func (l *Live) erase(w io.Writer) {
	if l.width != nil && l.drawn != "" {
		fmt.Fprintf(w, "\x1b[%dA\x1b[J", screenLines(l.drawn, l.columns()))
	}
	l.drawn = ""
}

// screenLines is how many lines of a screen a text takes that ends with a newline:
// a terminal breaks those that are longer than it has columns, if that is known.
func screenLines(text string, columns int) (n int) {
	for line := range strings.Lines(text) {
		n++
		for _, e := range []string{bold, plain} {
			line = strings.ReplaceAll(line, e, "")
		}
		if long := utf8.RuneCountInString(line) - len("\n"); columns > 0 && long > 0 {
			n += (long - 1) / columns
		}
	}
	return n
}

// columns is the terminal's width, 0 if there is none or it is unknown.
func (l *Live) columns() int {
	if l.width == nil {
		return 0
	}
	return l.width()
}

const bold, plain = "\x1b[1m", "\x1b[0m"

func (l *Live) emphasis() func(string) string {
	if l.width == nil {
		return nil
	}
	return func(s string) string { return bold + s + plain }
}
