package framework

import "testing"

func TestEffectOf(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Settings)
		want   Effect
	}{
		"nothing":  {func(*Settings) {}, Live},
		"MTU":      {func(s *Settings) { s.MTU++ }, Reset},
		"address":  {func(s *Settings) { s.MAC[5]++ }, Live},
		"RSS":      {func(s *Settings) { s.Features ^= RSSHash }, Reset},
		"checksum": {func(s *Settings) { s.Features ^= RxChecksum }, Live},
		"key":      {func(s *Settings) { s.RSS.Key[39]++ }, Reset},
		"table":    {func(s *Settings) { s.RSS.Indirection[0]++ }, Live},
	} {
		now := Settings{MTU: 1500, Features: AllFeatures}
		next := now
		c.change(&next)
		if got := EffectOf(&now, &next); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestQueuesOf(t *testing.T) {
	type rx struct{ RxQueue }
	type tx struct{ TxQueue }
	a, b := &rx{}, &rx{}
	q := QueuesOf([]*rx{a, b}, []*tx{})
	if len(q.Rx) != 2 || q.Rx[0] != RxQueue(a) || q.Rx[1] != RxQueue(b) || len(q.Tx) != 0 {
		t.Errorf("queues %+v", q)
	}
}
