package config

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestLoops: whatever bridges and wires are joined how, a loop is refused and all else
// is not. A bridge's table of what is reached from where is the judge.
func TestLoops(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	seen := map[bool]int{}
	for range 100 {
		text := "wire \"w0\" {}\nwire \"w1\" {}\nwire \"w2\" {}\nwire \"w3\" {}\n"
		var edges [][2]int // bridge, wire
		for n := range 2 + rng.IntN(5) {
			e := [2]int{rng.IntN(3), rng.IntN(4)}
			edges = append(edges, e)
			text += fmt.Sprintf("interface \"i%d\" {\n  driver = \"vmxnet3\"\n  device \"sim\" {\n    model = \"vmxnet3\"\n    wire = \"w%d\"\n  }\n  port \"forward\" { bridge = \"br%d\" }\n}\n", n, e[1], e[0])
		}
		_, err := Parse("n.hcl", []byte(text), testVocabulary)
		refused := err != nil && strings.Contains(fmt.Sprint(errorTexts(err)), "closes a loop")
		want := storms(edges)
		if refused != want {
			t.Fatalf("bridges and wires %v: refused %v, a frame goes round %v: %v", edges, refused, want, err)
		}
		seen[want]++
	}
	if seen[true] < 10 || seen[false] < 10 {
		t.Errorf("%v: too few of one kind", seen)
	}
}

func errorTexts(err error) (list []string) {
	d, _ := err.(Diagnostics)
	for _, p := range d {
		list = append(list, p.Text)
	}
	return list
}

// storms floods a frame from each wire on, port by port, and tells whether it ever comes
// back to a wire that it was on.
func storms(edges [][2]int) bool {
	type hop struct{ port, wire int } // the port that put the frame on the wire
	for from := range 4 {
		been, work := []int{from}, []hop{{-1, from}}
		for len(work) > 0 {
			h := work[0]
			work = work[1:]
			for in, e := range edges {
				if e[1] != h.wire || in == h.port {
					continue
				}
				for out, o := range edges {
					if o[0] != e[0] || out == in {
						continue
					}
					if slices.Contains(been, o[1]) {
						return true
					}
					been, work = append(been, o[1]), append(work, hop{out, o[1]})
				}
			}
		}
	}
	return false
}
