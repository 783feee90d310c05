package lro

import "math/bits"

const ways = 8 // slots of a set: their tags fill one cache line, and a search looks at no more than these

// entry is an open aggregate, or the memory of a flow whose aggregate has ended. It is two cache lines: a candidate is
// compared with what is here, and the first packet's own headers are not touched again.
type entry struct {
	identity
	shape
	mark uint32
	next uint32 // the sequence number that follows
	room uint32 // bytes of payload that still fit
	out  int32  // index of the aggregate in the output; -1 if none is open
	size uint16 // payload of the first segment
	id   uint16 // IPv4 identification of the last segment
	mode IDMode
}

// table is a set-associative table of flows. An entry counts only if its tag carries the current generation, so that
// forgetting all flows is one addition.
type table struct {
	tags       []uint64 // generation, hash
	entries    []entry
	used       []uint32 // slots taken in this generation, in the order of arrival
	mask       uint64
	generation uint64
	seed       [2]uint64
}

func (t *table) init(flows int, seed uint64) {
	sets := 1
	for sets*ways < flows {
		sets *= 2
	}
	t.tags = make([]uint64, sets*ways)
	t.entries = make([]entry, sets*ways)
	t.used = make([]uint32, 0, sets*ways)
	t.mask = uint64(sets - 1)
	t.generation = 1
	t.seed = [2]uint64{seed, bits.RotateLeft64(seed, 32) ^ 0x9e3779b97f4a7c15}
}

// forget empties the table.
func (t *table) forget() {
	t.used = t.used[:0]
	t.generation++
	if t.generation>>32 != 0 {
		clear(t.tags)
		t.generation = 1
	}
}

// hash mixes the identity. Multiplying two seeded words and folding the product spreads every input bit.
func (t *table) hash(v *view) uint64 {
	h1, l1 := bits.Mul64(v.addr[0]^t.seed[0], v.ports^v.tags^v.meta<<24^t.seed[1])
	if v.flags&IPv6 == 0 {
		return h1 ^ l1
	}
	h2, l2 := bits.Mul64(v.addr[1]^h1^t.seed[1], v.addr[2]^l1^t.seed[0])
	h3, l3 := bits.Mul64(v.addr[3]^h2, l2^t.seed[1])
	return h3 ^ l3
}

func (t *table) tag(hash uint64) uint64 { return t.generation<<32 | hash>>32 }

// find returns the entry of the view's flow, or nil.
func (t *table) find(v *view, hash uint64) *entry {
	base := (hash & t.mask) * ways
	tags := (*[ways]uint64)(t.tags[base:])
	want := t.tag(hash)
	for i := range tags {
		if tags[i] == want {
			if x := &t.entries[base+uint64(i)]; x.same(v) {
				return x
			}
		}
	}
	return nil
}

// same reports whether the entry is of the view's flow. meta tells the families apart, and IPv4 has one address word.
func (x *entry) same(v *view) bool {
	d := (x.addr[0] ^ v.addr[0]) | (x.ports ^ v.ports) | (x.tags ^ v.tags) | (x.meta ^ v.meta)
	if v.flags&IPv6 != 0 {
		d |= (x.addr[1] ^ v.addr[1]) | (x.addr[2] ^ v.addr[2]) | (x.addr[3] ^ v.addr[3])
	}
	return d == 0
}

// slot returns an entry for a flow that has none: a free one of its set, or the oldest one. What is in it is to be
// overwritten; if it is an open aggregate, evicted is true.
func (t *table) slot(hash uint64) (x *entry, evicted bool) {
	base := (hash & t.mask) * ways
	tags := (*[ways]uint64)(t.tags[base:])
	oldest := 0
	for i := range tags {
		if tags[i]>>32 != t.generation {
			tags[i] = t.tag(hash)
			t.used = append(t.used, uint32(base)+uint32(i))
			return &t.entries[base+uint64(i)], false
		}
		if t.entries[base+uint64(i)].out < t.entries[base+uint64(oldest)].out {
			oldest = i
		}
	}
	tags[oldest] = t.tag(hash)
	x = &t.entries[base+uint64(oldest)]
	return x, x.out >= 0
}

// close ends the entry's aggregate, if one is open.
func (e *Engine) close(x *entry, r Reason) {
	if x.out < 0 {
		return
	}
	x.out = -1
	e.open--
	e.stats.Ended[r]++
}

// closeAll ends all open aggregates.
func (e *Engine) closeAll(r Reason) {
	e.stats.Ended[r] += e.open
	e.open = 0
	e.table.forget()
}

// closePair ends the open aggregates of all flows between the view's two addresses, whatever their ports and tags.
func (e *Engine) closePair(r Reason) {
	if e.open == 0 {
		return
	}
	for _, i := range e.table.used {
		if x := &e.table.entries[i]; x.addr == e.view.addr {
			e.close(x, r)
		}
	}
}
