package drivertest

import (
	"slices"

	"nicd/framework"
	"nicd/framework/drivertest/rig"
)

var filterChecks = []*check{
	{name: "filter.own", run: filterOwn,
		doc: "Without filters the device receives what is for its address and broadcasts, and nothing else."},
	{name: "filter.multicast", run: filterMulticast,
		doc: "Listed groups arrive, each time the list changes, and not more than a hash lets through of the others."},
	{name: "filter.unicast", run: filterUnicast,
		doc: "As many more unicast addresses as Info says arrive, and none when they are taken back."},
	{name: "filter.full", run: filterFull,
		doc: "A multicast list of the longest that Info says works."},
	{name: "filter.promiscuous", run: filterPromiscuous,
		doc: "Promiscuous mode receives everything, all-multicast every group, and both end."},
	{name: "filter.address", run: filterAddress,
		doc: "A changed address receives at once, and the old one no more."},
	{name: "filter.overflow", run: filterOverflow,
		doc: "More addresses and groups than the device has room for all arrive: the engine turns to promiscuity."},
}

// Addresses of the filter checks.
var (
	stranger  = framework.MAC{0x02, 9, 9, 9, 9, 9}
	groupA    = framework.MAC{0x01, 0, 0x5E, 1, 2, 3}
	groupB    = framework.MAC{0x01, 0, 0x5E, 0x7F, 0xEE, 0xDD}
	broadcast = framework.MAC{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}
)

// marker is a frame that always arrives, so that what was sent before it has
// arrived, or never will.
var marker = rig.Frame{To: broadcast, Payload: 60, Port: 9}.Build()

// arriving sends a frame to each address and returns those at which one arrived.
func (t *c) arriving(n *rig.Net, to []framework.MAC) map[framework.MAC]bool {
	for _, mac := range to {
		n.Inject(rig.Frame{To: mac, Payload: 70}.Build())
	}
	n.Inject(marker)
	seen, done := map[framework.MAC]bool{}, false
	n.Until("the marker", func() bool {
		for q := range n.Queues.Rx {
			for _, p := range n.Poll(q) {
				if string(p.Bytes) == string(marker) {
					done = true
					continue
				}
				var mac framework.MAC
				copy(mac[:], p.Bytes)
				if seen[mac] {
					t.Errorf("a frame for %v arrives twice", mac)
				}
				seen[mac] = true
			}
		}
		return done
	})
	return seen
}

// accepts fails unless frames to the addresses arrive, or not, as they should. It
// is for one receive queue or for frames of one flow.
func (t *c) accepts(n *rig.Net, want map[framework.MAC]bool) {
	var to []framework.MAC
	for mac := range want {
		to = append(to, mac)
	}
	slices.SortFunc(to, func(a, b framework.MAC) int { return slices.Compare(a[:], b[:]) })
	seen := t.arriving(n, to)
	for _, mac := range to {
		if seen[mac] != want[mac] {
			t.Errorf("a frame for %v arrives: %v, should: %v", mac, seen[mac], want[mac])
		}
	}
}

func (t *c) filterNet() *rig.Net { return t.net(on{Options: rig.Options{Config: oneQueue}}) }

func filterOwn(t *c) {
	n := t.filterNet()
	t.accepts(n, map[framework.MAC]bool{rig.MAC: true, broadcast: true, stranger: false, groupA: false, groupB: false})
}

func filterMulticast(t *c) {
	n := t.filterNet()
	for _, list := range [][]framework.MAC{{groupA}, {groupB, groupA}, {groupB}, nil, {groupA}} {
		if len(list) > n.Info.MaxMulticast {
			continue
		}
		n.SetFilters(framework.Filters{Multicast: list})
		want := map[framework.MAC]bool{rig.MAC: true, broadcast: true, stranger: false}
		for _, g := range list {
			want[g] = true
		}
		t.accepts(n, want)
	}
	// The filter may be a hash; but of many groups most are kept out.
	var others []framework.MAC
	for i := range byte(32) {
		others = append(others, framework.MAC{0x01, 0, 0x5E, 0x11 + i*7, 0x20 + i, 0x35 ^ i*5})
	}
	if seen := t.arriving(n, others); len(seen) > len(others)/4 {
		t.Errorf("%d of %d groups arrive that nobody asked for", len(seen), len(others))
	}
}

func filterUnicast(t *c) {
	n := t.filterNet()
	if n.Info.MaxUnicast == 0 {
		t.notApplicable("%s has no filter for more unicast addresses", n.Info.Model)
	}
	var list []framework.MAC
	want := map[framework.MAC]bool{rig.MAC: true, stranger: false}
	for i := range min(n.Info.MaxUnicast, 64) {
		mac := framework.MAC{2, 0x77, 0, 0, byte(i), 1}
		list = append(list, mac)
		want[mac] = true
	}
	n.SetFilters(framework.Filters{Unicast: list})
	t.accepts(n, want)
	n.SetFilters(framework.Filters{Unicast: list[:1]})
	for _, mac := range list[1:] {
		want[mac] = false
	}
	t.accepts(n, want)
	n.SetFilters(framework.Filters{})
	t.accepts(n, map[framework.MAC]bool{rig.MAC: true, list[0]: false})
}

// groups makes n groups.
func groups(n int) (list []framework.MAC) {
	for i := range n {
		list = append(list, framework.MAC{0x01, 0, 0x5E, byte(i >> 16), byte(i >> 8), byte(i)})
	}
	return list
}

func filterFull(t *c) {
	n := t.filterNet()
	if n.Info.MaxMulticast == 0 {
		t.notApplicable("%s has no multicast filter", n.Info.Model)
	}
	list := groups(n.Info.MaxMulticast)
	n.SetFilters(framework.Filters{Multicast: list})
	want := map[framework.MAC]bool{rig.MAC: true, stranger: false}
	for i := range 16 {
		want[list[i*(len(list)-1)/15]] = true
	}
	t.accepts(n, want)
}

func filterPromiscuous(t *c) {
	n := t.filterNet()
	n.SetFilters(framework.Filters{Promiscuous: true})
	t.accepts(n, map[framework.MAC]bool{rig.MAC: true, broadcast: true, stranger: true, groupA: true, groupB: true})
	n.SetFilters(framework.Filters{AllMulticast: true})
	t.accepts(n, map[framework.MAC]bool{rig.MAC: true, broadcast: true, stranger: false, groupA: true, groupB: true})
	n.SetFilters(framework.Filters{})
	t.accepts(n, map[framework.MAC]bool{rig.MAC: true, broadcast: true, stranger: false, groupA: false, groupB: false})
}

func filterAddress(t *c) {
	n := t.filterNet()
	n.Change(func(s *framework.Settings) { s.MAC = stranger })
	t.accepts(n, map[framework.MAC]bool{stranger: true, rig.MAC: false, broadcast: true})
	n.Change(func(s *framework.Settings) { s.MAC = rig.MAC })
	t.accepts(n, map[framework.MAC]bool{stranger: false, rig.MAC: true, broadcast: true})
}

func filterOverflow(t *c) {
	s := t.stack(stackOptions{})
	info := s.info
	var unicast []framework.MAC
	for i := range min(info.MaxUnicast+1, 512) {
		unicast = append(unicast, framework.MAC{2, 0x55, 0, byte(i >> 8), byte(i), 3})
	}
	multicast := groups(min(info.MaxMulticast+1, 8192))
	t.must(s.engine.SetFilters(s.net.Context, framework.Filters{Unicast: unicast, Multicast: multicast}))
	want := 0
	for _, list := range [][]framework.MAC{unicast, multicast} {
		for i := range min(len(list), 20) {
			s.net.Inject(rig.Frame{To: list[len(list)-1-i], Payload: 70}.Build())
			want++
		}
	}
	s.receive(want)
}
