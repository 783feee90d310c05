package lro

import (
	"bytes"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// holding runs batches through a Holder one tick apart and returns, for each, the handles of what came out.
func holding(t *testing.T, h *Holder, batches ...[]Packet) []string {
	t.Helper()
	var text []string
	handle := uint64(0)
	for now, in := range batches {
		for i := range in {
			in[i].Handle = handle
			handle++
		}
		out := h.Add(in, int64(now), nil)
		line := ""
		for i := range out {
			line += fmt.Sprint(handles(t, h, &out[i]))
		}
		text = append(text, line)
	}
	return text
}

func handles(t failer, h *Holder, a *Aggregate) []uint64 {
	t.Helper()
	var v []uint64
	for _, i := range members(t, h.Packets(), a) {
		v = append(v, h.Packets()[i].Handle)
	}
	return v
}

func TestHolderMergesAcrossBatches(t *testing.T) {
	s := train(6, 100, nil)
	s[5].flags |= flagPSH
	h := NewHolder(Options{}, HoldOptions{MaxAge: 100})
	got := holding(t, h, packets(s[:2]...), packets(s[2:3]...), nil, packets(s[3:]...), nil)
	if want := `["" "" "" "[0 1 2 3 4 5]" ""]`; fmt.Sprintf("%q", got) != want {
		t.Errorf("got  %q\nwant %s", got, want)
	}
	if h.Held() != 0 {
		t.Errorf("%d held", h.Held())
	}
}

// TestHolderAge is property P13 with a clock: nothing is held for longer than the age.
func TestHolderAge(t *testing.T) {
	s := train(4, 100, nil)
	h := NewHolder(Options{}, HoldOptions{MaxAge: 2})
	got := holding(t, h, packets(s[0]), packets(s[1]), packets(s[2]), packets(s[3]), nil, nil, nil)
	if want := `["" "" "[0 1 2]" "" "" "[3]" ""]`; fmt.Sprintf("%q", got) != want {
		t.Errorf("got  %q\nwant %s", got, want)
	}
	if n := h.Stats().Ended[ReasonExpired]; n != 2 {
		t.Errorf("%d expired", n)
	}
}

// TestHolderAgeOfEach: an aggregate keeps its own age when one before it is released.
func TestHolderAgeOfEach(t *testing.T) {
	a, b := data(0, 100), data(0, 100)
	b.sport++
	got := holding(t, NewHolder(Options{}, HoldOptions{MaxAge: 4}), packets(a), nil, nil, packets(b), nil, nil, nil, nil)
	if want := `["" "" "" "" "[0]" "" "" "[1]"]`; fmt.Sprintf("%q", got) != want {
		t.Errorf("got  %q\nwant %s", got, want)
	}
}

func TestHolderWithoutAge(t *testing.T) {
	s := train(4, 100, nil)
	got := holding(t, NewHolder(Options{}, HoldOptions{}), packets(s[:3]...), packets(s[3]))
	if want := `["[0 1 2]" "[3]"]`; fmt.Sprintf("%q", got) != want {
		t.Errorf("got  %q\nwant %s", got, want)
	}
}

func TestHolderLimit(t *testing.T) {
	s := train(6, 100, nil)
	got := holding(t, NewHolder(Options{}, HoldOptions{MaxAge: 100, MaxHeld: 3}), packets(s[:3]...), packets(s[3:5]...), packets(s[5]))
	if want := `["" "[0 1 2 3 4]" ""]`; fmt.Sprintf("%q", got) != want {
		t.Errorf("got  %q\nwant %s", got, want)
	}
}

func TestHolderFlush(t *testing.T) {
	h := NewHolder(Options{}, HoldOptions{MaxAge: 100})
	holding(t, h, sized(100, 100))
	if h.Held() != 2 {
		t.Errorf("%d held", h.Held())
	}
	out := h.Flush(nil)
	if len(out) != 1 || fmt.Sprint(handles(t, h, &out[0])) != "[0 1]" || h.Held() != 0 {
		t.Errorf("%+v, %d held", out, h.Held())
	}
	if out := h.Flush(nil); len(out) != 0 {
		t.Errorf("%+v", out)
	}
}

// TestHolderUnparsable: what cannot be parsed overtakes nothing that is held.
func TestHolderUnparsable(t *testing.T) {
	s := train(2, 100, nil)
	bad := Packet{Data: make([]byte, 5), Len: 5}
	got := holding(t, NewHolder(Options{}, HoldOptions{MaxAge: 100}), packets(s[0]), []Packet{bad}, packets(s[1]), nil)
	if want := `["" "[0][1]" "" ""]`; fmt.Sprintf("%q", got) != want {
		t.Errorf("got  %q\nwant %s", got, want)
	}
}

// TestHolderProperties is P1 to P6 and P13 across batches on drawn traces, with a flow's order over all outputs.
func TestHolderProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := drawTrace(t)
		frames := snapshot(tr.in)
		keys := make([]flowKey, len(tr.in))
		for i := range tr.in {
			tr.in[i].Handle = uint64(i)
			keys[i] = modelParse(&tr.in[i], frames[i]).key
		}
		age := rapid.Int64Range(0, 5).Draw(t, "age")
		h := NewHolder(tr.options, HoldOptions{MaxAge: age, MaxHeld: rapid.IntRange(0, 12).Draw(t, "held")})
		arrived := make([]int64, len(tr.in))
		seen := make([]bool, len(tr.in))
		last := map[flowKey]uint64{}
		check := func(out []Aggregate, now int64) {
			for i := range out {
				got := resegment(h.Packets(), &out[i])
				for k, j := range handles(t, h, &out[i]) {
					if seen[j] {
						t.Fatalf("packet %d twice", j)
					}
					seen[j] = true
					if !bytes.Equal(got[k], frames[j]) {
						t.Fatalf("frame %d: %s", j, difference(got[k], frames[j]))
					}
					if before, ok := last[keys[j]]; ok && before > j {
						t.Fatalf("packet %d after packet %d", j, before)
					}
					last[keys[j]] = j
					if now-arrived[j] > age {
						t.Fatalf("packet %d was held from %d to %d", j, arrived[j], now)
					}
				}
				checkHeaders(t, h.Packets(), &out[i], len(got))
			}
		}
		now := int64(0)
		for at := 0; at < len(tr.in); {
			n := rapid.IntRange(0, min(4, len(tr.in)-at)).Draw(t, "batch")
			for i := range n {
				arrived[at+i] = now
			}
			check(h.Add(tr.in[at:at+n], now, nil), now)
			at += n
			now++
		}
		for range age {
			check(h.Add(nil, now, nil), now)
			now++
		}
		if h.Held() != 0 {
			t.Fatalf("%d held after the age", h.Held())
		}
		for i := range seen {
			if !seen[i] {
				t.Fatalf("packet %d did not come out", i)
			}
		}
		checkStats(t, h.engine)
	})
}

func TestHolderDoesNotAllocate(t *testing.T) {
	h := NewHolder(Options{}, HoldOptions{MaxAge: 3})
	in := packets(train(64, 100, func(i int, s *segment) { s.sport = uint16(i % 5) })...)
	out := make([]Aggregate, 0, 256)
	now := int64(0)
	step := func() {
		out = h.Add(in, now, out[:0])
		now++
	}
	for range 20 {
		step()
	}
	if n := testing.AllocsPerRun(100, step); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
