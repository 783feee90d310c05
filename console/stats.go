package console

import (
	"fmt"
	"io"
	"strings"
	"time"

	"nicd/proto/adminpb"
)

// CounterRates prints an interface's counters, from the second time on with what
// was counted a second since the time before.
type CounterRates struct {
	all  bool
	last map[string]uint64 // by section and name
	at   time.Time
}

// NewCounterRates leaves counters out that are zero unless all is set.
func NewCounterRates(all bool) *CounterRates { return &CounterRates{all: all} }

// Print prints counters as they are at a time.
func (c *CounterRates) Print(w io.Writer, s *adminpb.StatsReply, at time.Time) {
	now := map[string]uint64{}
	seconds := at.Sub(c.at).Seconds()
	for _, section := range sections(s) {
		c.section(w, section, seconds, now)
	}
	if s.Violation != "" {
		fmt.Fprintf(w, "counters do not add up: %s\n", s.Violation)
	}
	c.last, c.at = now, at
}

// section is a table of counters.
type section struct {
	title    string
	counters []*adminpb.Counter
}

func sections(s *adminpb.StatsReply) (list []section) {
	for _, q := range s.Queues {
		list = append(list, section{fmt.Sprintf("%s %s %d", s.Interface, q.Kind, q.Index), q.Counters})
	}
	return append(list,
		section{s.Interface + " engine", s.Device}, section{s.Interface + " hardware", s.Hardware}, section{s.Interface + " link", s.Link},
		section{s.Interface + " port", s.Port}, section{s.Interface + " wire", s.Wire})
}

func (c *CounterRates) section(w io.Writer, s section, seconds float64, now map[string]uint64) {
	head := []string{strings.ToUpper(s.title), ">VALUE", "UNIT", "MEANING"}
	if c.last != nil {
		head = []string{head[0], head[1], ">A SECOND", head[2], head[3]}
	}
	t := newTable(head...)
	for _, k := range s.counters {
		key := s.title + " " + k.Name
		now[key] = k.Value
		if k.Value == 0 && !c.all {
			continue
		}
		name := k.Name
		if k.Bad && k.Value != 0 {
			name += " !"
		}
		cells := []any{name, k.Value, k.Unit, k.Doc}
		if c.last != nil {
			cells = []any{name, k.Value, c.rate(key, k, seconds), k.Unit, k.Doc}
		}
		t.row(cells...)
	}
	if len(t.rows) > 0 {
		t.print(w, nil)
		fmt.Fprintln(w)
	}
}

// rate is what was counted a second. Levels have none.
func (c *CounterRates) rate(key string, k *adminpb.Counter, seconds float64) string {
	if k.Unit == "level" || seconds <= 0 || k.Value < c.last[key] {
		return "-"
	}
	return count(float64(k.Value-c.last[key]) / seconds)
}
