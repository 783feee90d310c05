package plugin

import "time"

// allowance bounds how much a plugin can write to nicd's log: so many records
// at once, and so many a second in the long run. The zero value is full.
type allowance struct {
	used    float64   // of the burst
	at      time.Time // when that was
	refused int       // since the last that was allowed
	now     func() time.Time
}

const (
	logBurst     = 4000
	logPerSecond = 200
)

// take tells whether one more is allowed, and how many were not since the last
// one that was.
func (a *allowance) take() (refused int, ok bool) {
	now := time.Now
	if a.now != nil {
		now = a.now
	}
	t := now()
	a.used = max(0, a.used-t.Sub(a.at).Seconds()*logPerSecond)
	a.at = t
	if a.used+1 > logBurst {
		a.refused++
		return 0, false
	}
	a.used++
	refused, a.refused = a.refused, 0
	return refused, true
}
