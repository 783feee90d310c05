package lro

import "math/bits"

const ways = 8 // slots of a set: their tags fill one cache line, and a search looks at no more than these

// entry is an open aggregate, or the memory of a flow whose aggregate has ended. It is two cache lines: a candidate is
// compared with what is here, and the first packet's own headers are not touched again.
type entry struct {
	identity
	shape
	mark  uint32
	next  uint32 // the sequence number that follows
	limit uint32 // the most that Aggregate.Len may become
	out   int32  // index of the aggregate in the output; -1 if none is open
	size  uint16 // payload of the first segment
	id    uint16 // IPv4 identification of the last segment
	mode  IDMode
}

// set is the entries whose hash ends alike. They fill up in order within a generation.
type set struct {
	tags    [ways]uint64 // generation, hash
	entries [ways]entry
}

// seek returns the first way with the tag, or the first that is free; ways if there is neither.
func (s *set) seek(want, stamp uint64) int {
	for i, tag := range s.tags {
		if tag == want || tag < stamp {
			return i
		}
	}
	return ways
}

// table is a set-associative table of flows. An entry counts only if its tag carries the current generation, so that
// forgetting all flows is one addition.
type table struct {
	sets  []set
	used  []uint32 // slots taken in this generation, in the order of arrival
	mask  uint64
	stamp uint64 // the generation, in the upper half
	seed  [2]uint64
}

func (t *table) init(flows int, seed uint64) {
	sets := 1
	for sets*ways < flows {
		sets *= 2
	}
	t.sets = make([]set, sets)
	t.used = make([]uint32, 0, sets*ways)
	t.mask = uint64(sets - 1)
	t.stamp = 1 << 32
	t.seed = [2]uint64{seed, bits.RotateLeft64(seed, 32) ^ 0x9e3779b97f4a7c15}
}

// forget empties the table.
func (t *table) forget() {
	t.used = t.used[:0]
	t.stamp += 1 << 32
	if t.stamp == 0 {
		clear(t.sets)
		t.stamp = 1 << 32
	}
}

// hash mixes the identity. Multiplying two seeded words and folding the product spreads every input bit.
func (t *table) hash(v *view) uint64 {
	h1, l1 := bits.Mul64(v.addr[0]^t.seed[0], v.ports^v.tags^v.meta<<24^t.seed[1])
	if v.flags&IPv6 != 0 {
		h1, l1 = t.hashMore(h1, l1, v.addr[1], v.addr[2], v.addr[3])
	}
	return h1 ^ l1
}

// hashMore mixes the rest of the addresses of IPv6 into a product.
func (t *table) hashMore(high, low, a1, a2, a3 uint64) (uint64, uint64) {
	h, l := bits.Mul64(a1^high^t.seed[1], a2^low^t.seed[0])
	return bits.Mul64(a3^h, l^t.seed[1])
}

func (t *table) tag(hash uint64) uint64 { return t.stamp | hash>>32 }

// find returns the entry of the view's flow, or nil and the way of its set that is free; that is ways if none is.
func (t *table) find(v *view, hash uint64) (x *entry, free int) {
	s := &t.sets[hash&t.mask]
	want := t.tag(hash)
	for i, tag := range s.tags {
		if tag == want {
			if x := &s.entries[i]; x.same(v) {
				return x, i
			}
		} else if tag < t.stamp {
			return nil, i
		}
	}
	return nil, ways
}

// same reports whether the entry is of the view's flow. meta tells the families apart, and IPv4 has one address word.
func (x *entry) same(v *view) bool {
	d := (x.addr[0] ^ v.addr[0]) | (x.ports ^ v.ports) | (x.tags ^ v.tags) | (x.meta ^ v.meta)
	if v.flags&IPv6 != 0 {
		d |= (x.addr[1] ^ v.addr[1]) | (x.addr[2] ^ v.addr[2]) | (x.addr[3] ^ v.addr[3])
	}
	return d == 0
}

// slot gives a way of the hash's set to the hash and returns its entry.
func (t *table) slot(hash uint64, way int) *entry {
	s := &t.sets[hash&t.mask]
	if s.tags[way] < t.stamp {
		t.used = append(t.used, uint32(hash&t.mask)*ways+uint32(way))
	}
	s.tags[way] = t.tag(hash)
	return &s.entries[way]
}

// at returns the entry with an index as in used.
func (t *table) at(i uint32) *entry { return &t.sets[i/ways].entries[i%ways] }

// oldest returns the way of a full set that is to make way: one whose aggregate has ended, or the one whose aggregate
// is the oldest.
func (t *table) oldest(hash uint64) (way int) {
	s := &t.sets[hash&t.mask]
	for i := range s.entries {
		if s.entries[i].out < s.entries[way].out {
			way = i
		}
	}
	return way
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
		if x := e.table.at(i); x.addr == e.view.addr {
			e.close(x, r)
		}
	}
}
