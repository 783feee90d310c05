package forward

import (
	"math/rand/v2"
	"sync/atomic"
)

// table is the bridge's forwarding database: which address was last seen at
// which port (IEEE 802.1Q-2018 section 8.8). It has a fixed number of places,
// four for each hash; when those are full the oldest gives way. Many queues learn
// and look up at once without locks: an entry is one word, so that a reader sees
// an old entry or a new one, and what a lost race costs is a frame that is
// flooded.
type table struct {
	buckets []bucket
	shift   uint
	seed    uint64
	maxAge  uint32
	evicted atomic.Uint64
	moved   atomic.Uint64
}

const ways = 4

// bucket is a cache line's worth of entries.
type bucket struct {
	entry [ways]atomic.Uint64 // address<<16 | port; 0 is none
	seen  [ways]atomic.Uint32 // when, in the caller's seconds
}

// newTable makes a table of at least so many places, whose entries are good for
// maxAge seconds.
func newTable(places int, maxAge uint32) *table {
	bits := uint(0)
	for ways<<bits < places {
		bits++
	}
	return &table{buckets: make([]bucket, 1<<bits), shift: 64 - bits, seed: rand.Uint64() | 1, maxAge: maxAge}
}

// bucket is where an address can be. The seed keeps a sender from choosing
// addresses that all are in one.
func (t *table) bucket(address uint64) *bucket {
	return &t.buckets[(address*t.seed)>>t.shift&uint64(len(t.buckets)-1)]
}

// age is how long ago an entry was seen. Each queue has the time of when its batch
// began, so that one can find what another will have seen in its next second.
func age(now, seen uint32) uint32 { return uint32(max(int32(now-seen), 0)) }

// find is the place of an address and what is there; -1 if it has none.
func (b *bucket) find(address uint64) (place int, entry uint64) {
	for i := range b.entry {
		if e := b.entry[i].Load(); e != 0 && e>>16 == address {
			return i, e
		}
	}
	return -1, 0
}

// lookup is the port at which an address was last seen.
func (t *table) lookup(address uint64, now uint32) (port int, ok bool) {
	b := t.bucket(address)
	i, e := b.find(address)
	if i < 0 || age(now, b.seen[i].Load()) > t.maxAge {
		return 0, false
	}
	return int(e & 0xffff), true
}

// learn notes that an address was seen at a port. Queues that learn one address at
// once may give it two places; whoever comes last sees both, and leaves one. A turn
// that comes to nothing is one in which another queue's came to something.
func (t *table) learn(address uint64, port int, now uint32) {
	b, want := t.bucket(address), address<<16|uint64(port)
	for {
		i, e := b.find(address)
		if i < 0 {
			t.insert(b, want, now)
			continue
		}
		if e != want {
			if !b.entry[i].CompareAndSwap(e, want) {
				continue
			}
			t.moved.Add(1)
		}
		// After the entry: one that is out of date must not become younger.
		if age(now, b.seen[i].Load()) > 0 {
			b.seen[i].Store(now)
		}
		if b.clearFrom(i+1, address) {
			return
		}
	}
}

// insert gives an entry an empty place, or that of the oldest, unless another queue is
// quicker.
func (t *table) insert(b *bucket, entry uint64, now uint32) {
	place, most := 0, uint32(0)
	for i := range b.entry {
		a := age(now, b.seen[i].Load())
		if b.entry[i].Load() == 0 {
			a = ^uint32(0)
		}
		if a > most {
			place, most = i, a
		}
	}
	if old := b.entry[place].Load(); old != 0 {
		if !b.entry[place].CompareAndSwap(old, 0) {
			return
		}
		if most <= t.maxAge {
			t.evicted.Add(1)
		}
	}
	b.seen[place].Store(now)
	b.entry[place].CompareAndSwap(0, entry)
}

// clearFrom empties the places of an address from one on. It tells whether it could.
func (b *bucket) clearFrom(place int, address uint64) bool {
	for i := place; i < ways; i++ {
		if e := b.entry[i].Load(); e != 0 && e>>16 == address && !b.entry[i].CompareAndSwap(e, 0) {
			return false
		}
	}
	return true
}

// forget removes what was seen at a port. Nobody learns meanwhile.
func (t *table) forget(port int) {
	for n := range t.buckets {
		for i := range t.buckets[n].entry {
			if p := &t.buckets[n].entry[i]; int(p.Load()&0xffff) == port {
				p.Store(0)
			}
		}
	}
}

// size is how many entries are good.
func (t *table) size(now uint32) int {
	n := 0
	for k := range t.buckets {
		b := &t.buckets[k]
		for i := range b.entry {
			if b.entry[i].Load() != 0 && age(now, b.seen[i].Load()) <= t.maxAge {
				n++
			}
		}
	}
	return n
}
