package daemon

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"nicd/bus"
	"nicd/config"
	"nicd/framework"
	"nicd/framework/engine"
)

// defaultQueues is how many queue pairs an interface gets if the config does not
// say: enough to spread flows, few enough for a small machine.
const defaultQueues = 4

// arenaQueues is how many queue pairs an interface's arena has to have, known
// before its device is. There are some more than it begins with: their number may
// change while it runs, and buffers that nobody uses cost no memory.
func arenaQueues(c *config.Interface) int { return max(plannedQueues(c), defaultQueues) }

// plannedQueues is how many queue pairs the config asks for.
func plannedQueues(c *config.Interface) int {
	if c.RxQueues == 0 && c.TxQueues == 0 {
		return defaultQueues
	}
	return max(c.RxQueues, c.TxQueues)
}

// makePlan decides how an interface runs: what the config asks for, as far as
// the device can. What the config asks for by number and the device cannot is an
// error that names both; what the config leaves open is chosen.
func makePlan(c *config.Interface, info *framework.Info, quirks *framework.Resolution, features *framework.FeaturePlan) (engine.Plan, error) {
	p := engine.Plan{
		Settings: framework.Settings{MTU: c.MTU, MAC: c.MAC, Features: features.Device},
		LRO:      features.LRO,
		RxBudget: c.RxBudget,
		CPUs:     c.CPUs,
		InlineTx: c.TxHandoff == config.Inline,
	}
	p.SpinMicros = int(c.Spin / time.Microsecond)
	if c.CPUs != nil {
		// Tasks can be placed only if they never sleep: waking a thread that is
		// bound takes forty times as long. The engine checks that enough
		// processors are left.
		p.SpinMicros = -1
	}
	if p.MAC == (framework.MAC{}) {
		p.MAC = info.MAC
	}
	if c.MTU < info.MinMTU || c.MTU > info.MaxMTU {
		return p, fmt.Errorf("%s: mtu %d: the %s takes %d to %d", c.Origin, c.MTU, info.Model, info.MinMTU, info.MaxMTU)
	}
	var err error
	set := func(to *int, what string, n int, refused error) {
		if *to = n; refused != nil && err == nil {
			err = fmt.Errorf("%s: %s: the %s %w", c.Origin, what, info.Model, refused)
		}
	}
	n, refused := queues(c.RxQueues, info.MaxRxQueues, plannedQueues(c))
	set(&p.RxQueues, "rx_queues", n, refused)
	n, refused = queues(c.TxQueues, info.MaxTxQueues, plannedQueues(c))
	set(&p.TxQueues, "tx_queues", n, refused)
	n, refused = descriptors(c.RxDescriptors, info.RxRing)
	set(&p.RxDescriptors, "rx_descriptors", n, refused)
	n, refused = descriptors(c.TxDescriptors, info.TxRing)
	set(&p.TxDescriptors, "tx_descriptors", n, refused)
	if err != nil {
		return p, err
	}
	if err := placeable(c, max(p.RxQueues, p.TxQueues), processors()); err != nil {
		return p, err
	}
	p.RSS = spread(p.RxQueues)
	p.Interrupts = planVectors(c, info, p.RxQueues, p.TxQueues, txInterrupts(quirks))
	if p.Interrupts.Vectors == 0 {
		return p, fmt.Errorf("%s: interrupts = %q: the %s offers %s", c.Origin, c.Interrupts, info.Model, offered(info))
	}
	return p, nil
}

// placeable says why the tasks of so many queues can't each poll for ever on its
// processor of the config's. has are the processors that nicd may run on.
func placeable(c *config.Interface, queues int, has []int) error {
	if c.CPUs == nil {
		return nil
	}
	for _, cpu := range c.CPUs {
		if !slices.Contains(has, cpu) {
			return fmt.Errorf("%s: cpus: nicd may not run on processor %d, or there is none; it has %s", c.Origin, cpu, rangesText(has))
		}
	}
	if len(c.CPUs) < queues {
		return fmt.Errorf("%s: cpus names %d for %d queues: name one for each, or set rx_queues and tx_queues", c.Origin, len(c.CPUs), queues)
	}
	if len(has) <= queues {
		return fmt.Errorf("%s: cpus: %d queues that poll all the time take %d processors, one for all else; nicd has %d: set rx_queues and tx_queues, or leave cpus out",
			c.Origin, queues, queues+1, len(has))
	}
	return nil
}

// rangesText is a list of ascending numbers: "0-3, 8".
func rangesText(list []int) string {
	var parts []string
	for from := 0; from < len(list); {
		to := from
		for to+1 < len(list) && list[to+1] == list[to]+1 {
			to++
		}
		text := itoa(list[from])
		if to > from {
			text += "-" + itoa(list[to])
		}
		parts = append(parts, text)
		from = to + 1
	}
	return strings.Join(parts, ", ")
}

func queues(wanted, has, otherwise int) (int, error) {
	if wanted > has {
		return 0, fmt.Errorf("has %d, not %d", has, wanted)
	}
	if wanted == 0 {
		return min(has, otherwise), nil
	}
	return wanted, nil
}

func descriptors(wanted int, rule framework.RingRule) (int, error) {
	if wanted == 0 {
		return rule.Default, nil
	}
	if !rule.Allows(wanted) {
		return 0, fmt.Errorf("takes %v, not %d", rule, wanted)
	}
	return wanted, nil
}

func txInterrupts(quirks *framework.Resolution) bool {
	v, ok := quirks.Lookup(framework.TxInterruptQuirk.Info().Name)
	return !ok || v.Value == "true"
}

// planVectors takes the best kind of interrupt that the device offers and the
// config allows, and as many vectors of it as there are queue pairs, plus one
// for the device itself. With fewer, pairs share.
func planVectors(c *config.Interface, info *framework.Info, rx, tx int, txInterrupt bool) framework.VectorPlan {
	for _, choice := range info.Interrupts {
		if c.Interrupts != config.AutoInterrupts && c.Interrupts != configKind(choice.Kind) || choice.Vectors < 1 {
			continue
		}
		p := framework.VectorPlan{Kind: choice.Kind, Vectors: min(choice.Vectors, max(rx, tx)+1), Moderation: int(c.Moderation / time.Microsecond)}
		data := max(1, p.Vectors-1)
		if p.Vectors > 1 {
			p.AdminVector = data
		}
		for q := range rx {
			p.RxVector = append(p.RxVector, q%data)
		}
		for q := range tx {
			v := q % data
			if !txInterrupt {
				v = -1
			}
			p.TxVector = append(p.TxVector, v)
		}
		return p
	}
	return framework.VectorPlan{}
}

func configKind(k bus.InterruptKind) config.Interrupts {
	switch k {
	case bus.MSIX:
		return config.MSIX
	case bus.MSI:
		return config.MSI
	}
	return config.INTx
}

func offered(info *framework.Info) string {
	text := ""
	for i, choice := range info.Interrupts {
		if i > 0 {
			text += " and "
		}
		text += string(configKind(choice.Kind))
	}
	if text == "" {
		return "none"
	}
	return text
}

// toeplitzKey is the key of Microsoft's RSS specification, which spreads well
// and whose hashes anyone can check.
var toeplitzKey = [40]byte{
	0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
	0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
	0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
}

// spread deals the entries of the indirection table to the queues in turn.
func spread(queues int) framework.RSS {
	rss := framework.RSS{Key: toeplitzKey}
	for i := range rss.Indirection {
		rss.Indirection[i] = uint8(i % queues)
	}
	return rss
}
