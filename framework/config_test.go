package framework

import (
	"errors"
	"strings"
	"testing"
)

func TestEffectOf(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Settings)
		want   Effect
	}{
		"nothing":  {func(*Settings) {}, Live},
		"tags":     {func(s *Settings) { s.Features &^= VLANStrip | VLANInsert }, Live},
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
		if got := EffectOf(&now, &next, NewQuirkSet()); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestNewQueues(t *testing.T) {
	type rx struct {
		RxQueue
		i int
	}
	type tx struct{ TxQueue }
	last := errors.New("no memory")
	makeRx := func(i int) (*rx, error) { return &rx{i: i}, nil }
	makeTx := func(i int) (*tx, error) {
		if i == 3 {
			return nil, last
		}
		return &tx{}, nil
	}
	q, err := NewQueues(&Config{RxQueues: 2, TxQueues: 3}, makeRx, makeTx)
	if err != nil || len(q.Rx) != 2 || q.Rx[0].(*rx).i != 0 || q.Rx[1].(*rx).i != 1 || len(q.Tx) != 3 {
		t.Errorf("queues %+v, %v", q, err)
	}
	q, err = NewQueues(&Config{RxQueues: 2, TxQueues: 4}, makeRx, makeTx)
	if !errors.Is(err, last) || q.Rx != nil || q.Tx != nil || !strings.HasPrefix(err.Error(), "transmit queue 3: ") {
		t.Errorf("queues %+v, %v", q, err)
	}
}

func TestVLANTable(t *testing.T) {
	some := [4096 / 64]uint64{3: 1 << 5}
	for _, c := range []struct {
		f        Filters
		features Features
		all      bool
	}{
		{Filters{VLANs: &some}, VLANFilter, false},
		{Filters{VLANs: &some, Promiscuous: true}, VLANFilter, true},
		{Filters{VLANs: &some}, AllFeatures &^ VLANFilter, true},
		{Filters{}, VLANFilter, true},
	} {
		table, all := c.f.VLANTable(c.features)
		if all != c.all || !all && table != some {
			t.Errorf("%+v: all %v, table %x", c, all, table)
		}
		for i, word := range table {
			if all && word != ^uint64(0) {
				t.Errorf("%+v: word %d of all is %#x", c, i, word)
			}
		}
	}
}

func TestMACWords(t *testing.T) {
	mac := MAC{1, 2, 3, 4, 5, 6}
	low, high := mac.Words()
	if low != 0x04030201 || high != 0x0605 || MACOf(low, high|0x8000_0000) != mac {
		t.Errorf("words %#x %#x, %v", low, high, MACOf(low, high))
	}
}
