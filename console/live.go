package console

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"

	"nicd/proto/adminpb"
)

// Live is the table that `nicd run` shows: on a terminal it is drawn over itself,
// elsewhere one follows another.
type Live struct {
	mu       sync.Mutex
	out      io.Writer
	terminal bool
	last     *adminpb.StatusReply
	lines    int // of the table that is on the screen, at its bottom
}

// NewLive makes a live table. Colours and cursor movements are for terminals.
func NewLive(out io.Writer, terminal bool) *Live { return &Live{out: out, terminal: terminal} }

// Update shows what happened since the last Update. The first shows what is.
func (l *Live) Update(s *adminpb.StatusReply) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b bytes.Buffer
	if l.last == nil {
		Status(&b, s)
		fmt.Fprintln(&b)
		l.last = s
		_, _ = b.WriteTo(l.out)
		return
	}
	interfaces, streams := Rates(l.last, s, s.UptimeSeconds-l.last.UptimeSeconds)
	l.last = s
	l.erase(&b)
	start := b.Len()
	fmt.Fprintf(&b, "up %s\n", (time.Duration(s.UptimeSeconds*10) * time.Second / 10).Truncate(time.Second))
	rates(&b, interfaces, streams, l.emphasis())
	reasons(&b, s)
	l.lines = bytes.Count(b.Bytes()[start:], []byte{'\n'})
	if !l.terminal {
		b.WriteByte('\n')
	}
	_, _ = b.WriteTo(l.out)
}

// Write puts log lines above the table, which the next Update draws again.
func (l *Live) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.erase(l.out)
	return l.out.Write(p)
}

func (l *Live) erase(w io.Writer) {
	if l.terminal && l.lines > 0 {
		fmt.Fprintf(w, "\x1b[%dA\x1b[J", l.lines)
	}
	l.lines = 0
}

func (l *Live) emphasis() func(string) string {
	if !l.terminal {
		return nil
	}
	return func(s string) string { return "\x1b[1m" + s + "\x1b[0m" }
}
