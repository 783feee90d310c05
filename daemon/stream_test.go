package daemon

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// TestStreamsOverTheNetworkInCommon: a stream that the config accepts finds its way,
// whatever other addresses its ends have and in whichever order.
func TestStreamsOverTheNetworkInCommon(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 6 {
		networks := []string{"10.0.0.%d/24", "10.1.0.%d/24", "192.0.2.%d/25", "fd00:1::%d/64", "fd00:2::%d/64", "fd00:3::%d/64"}
		rng.Shuffle(len(networks), func(i, j int) { networks[i], networks[j] = networks[j], networks[i] })
		common := networks[0]
		a, b := []string{common}, []string{common}
		for _, n := range networks[1:] { // each of the others is one end's only, or nobody's
			switch rng.IntN(3) {
			case 0:
				a = append(a, n)
			case 1:
				b = append(b, n)
			}
		}
		addresses := func(host int, list []string) string {
			rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			var quoted []string
			for _, n := range list {
				quoted = append(quoted, fmt.Sprintf("%q", fmt.Sprintf(n, host)))
			}
			return fmt.Sprintf("port \"netstack\" { address = [%s] }", strings.Join(quoted, ", "))
		}
		text := inProcess + nicText("a", "vmxnet3", vmxnet3Model(3), "", addresses(1, a)) +
			nicText("b", "e1000", `model = "82574L"`, "", addresses(2, b)) +
			"stream \"up\" {\n  from = \"a\"\n  to = \"b\"\n}\nstream \"down\" {\n  from = \"b\"\n  to = \"a\"\n}\n"
		t.Run(common, func(t *testing.T) {
			d := startTest(t, text)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if err := d.AwaitStreams(ctx); err != nil {
				t.Errorf("%v\na has %v, b has %v", err, a, b)
			}
		})
	}
}
