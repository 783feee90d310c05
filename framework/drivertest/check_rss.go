package drivertest

import (
	"fmt"
	"slices"

	"nicd/framework"
	"nicd/framework/drivertest/rig"
)

var rssChecks = []*check{
	{name: "rss.spread", features: framework.RSSHash, run: rssSpread,
		doc: "Flows reach all queues by the table, each flow one queue, with the hash that decided."},
	{name: "rss.toeplitz", features: framework.RSSHash, run: rssToeplitz,
		doc: "The hash is the Toeplitz hash that Microsoft published vectors for, over IPv4 and IPv6."},
	{name: "rss.table", features: framework.RSSHash, run: rssTable,
		doc: "A changed table holds for the next frame."},
	{name: "rss.key", features: framework.RSSHash, run: rssKey,
		doc: "Another key gives other hashes, which are right for it."},
	{name: "rss.one-queue", run: rssOne,
		doc: "With one queue everything arrives there."},
}

// spreadNet runs with as many receive queues as the rig's two.
func (t *c) spreadNet() *rig.Net {
	n := t.net(on{})
	if n.Config.RxQueues < 2 {
		t.notApplicable("%s has one receive queue", n.Info.Model)
	}
	return n
}

// followTable sends frames of many flows and fails unless each is where queueOf
// says.
func (t *c) followTable(n *rig.Net, queueOf func(hash uint32) int) (used []int) {
	for port := range uint16(60) {
		f := rig.Frame{Port: 1000 + port, Payload: 40, V6: port%4 == 3}.Build()
		n.Inject(f, f)
		got := n.Receive(2)
		for _, g := range got {
			if g.Flags&framework.HashValid == 0 || g.Queue != queueOf(g.Hash) || g.Hash != got[0].Hash {
				t.Fatalf("port %d: queue %d, flags %b, hash %#x; the table says queue %d", port, g.Queue, g.Flags, g.Hash, queueOf(g.Hash))
			}
			if !slices.Contains(used, g.Queue) {
				used = append(used, g.Queue)
			}
		}
	}
	return used
}

func byTable(n *rig.Net) func(uint32) int {
	return func(hash uint32) int { return int(n.Config.RSS.Indirection[hash%128]) }
}

func rssSpread(t *c) {
	n := t.spreadNet()
	if used := t.followTable(n, byTable(n)); len(used) < n.Config.RxQueues {
		t.Errorf("60 flows use %d of %d queues", len(used), n.Config.RxQueues)
	}
}

// toeplitz is the hash of input with key: the exclusive or of the key's 32 bits
// from each bit of the input that is set on (Microsoft, "RSS hashing types").
func toeplitz(key [40]byte, input []byte) (hash uint32) {
	for i := range 8 * len(input) {
		if input[i/8]&(0x80>>(i%8)) == 0 {
			continue
		}
		for bit := range 32 {
			at := i + bit
			if key[at/8]&(0x80>>(at%8)) != 0 {
				hash ^= 1 << (31 - bit)
			}
		}
	}
	return hash
}

// hashOf is the hash of a frame that [rig.Frame.Build] made: addresses and, for
// TCP, ports. withPorts is for devices that hash UDP's too.
func hashOf(key [40]byte, frame []byte, v6, withPorts bool) uint32 {
	addresses, ports := frame[26:34], frame[34:38]
	if v6 {
		addresses, ports = frame[22:54], frame[54:58]
	}
	input := slices.Clone(addresses)
	if withPorts {
		input = append(input, ports...)
	}
	return toeplitz(key, input)
}

// published checks this file's toeplitz against the published vectors, so that a
// mistake here is not called the device's.
func published() error {
	for _, v := range []struct {
		input []byte
		hash  uint32
	}{
		// 66.9.149.187:2794 to 161.142.100.80:1766, with and without ports.
		{[]byte{66, 9, 149, 187, 161, 142, 100, 80, 2794 >> 8, 2794 & 255, 1766 >> 8, 1766 & 255}, 0x51ccc178},
		{[]byte{66, 9, 149, 187, 161, 142, 100, 80}, 0x323e8fc2},
	} {
		if got := toeplitz(rig.Key, v.input); got != v.hash {
			return fmt.Errorf("the kit's own Toeplitz hash is %#x, not %#x", got, v.hash)
		}
	}
	return nil
}

// rightHashes fails unless hashes are those of key.
func (t *c) rightHashes(n *rig.Net, key [40]byte) {
	for port := range uint16(16) {
		for _, f := range []rig.Frame{{}, {V6: true}, {UDP: true}, {UDP: true, V6: true}} {
			f.Port, f.Payload = 3000+port, 50
			b := f.Build()
			n.Inject(b)
			got := n.Receive(1)[0]
			full, short := hashOf(key, b, f.V6, true), hashOf(key, b, f.V6, false)
			// Ports of UDP and of TCP over IPv6 are not everybody's.
			right := got.Hash == full || (f.UDP || f.V6) && got.Hash == short || f.UDP && got.Flags&framework.HashValid == 0
			if !right || !f.UDP && got.Flags&framework.HashValid == 0 {
				t.Errorf("%s, port %d: hash %#x (flags %b), want %#x", describe(f), f.Port, got.Hash, got.Flags, full)
			}
		}
	}
}

func rssToeplitz(t *c) {
	t.must(published())
	n := t.spreadNet()
	t.rightHashes(n, rig.Key)
}

func rssTable(t *c) {
	n := t.spreadNet()
	for _, only := range []uint8{1, 0, 1} {
		n.Change(func(s *framework.Settings) {
			for i := range s.RSS.Indirection {
				s.RSS.Indirection[i] = only
			}
		})
		t.followTable(n, func(uint32) int { return int(only) })
	}
	n.Change(func(s *framework.Settings) {
		for i := range s.RSS.Indirection {
			s.RSS.Indirection[i] = uint8(i / 64)
		}
	})
	if used := t.followTable(n, byTable(n)); len(used) < 2 {
		t.Errorf("queues used: %v", used)
	}
}

func rssKey(t *c) {
	n := t.spreadNet()
	var key [40]byte
	for i := range key {
		key[i] = byte(37*i + 11)
	}
	n.Change(func(s *framework.Settings) { s.RSS.Key = key })
	t.rightHashes(n, key)
	t.followTable(n, byTable(n))
}

func rssOne(t *c) {
	n := t.net(on{Options: rig.Options{Config: oneQueue}})
	for port := range uint16(40) {
		f := rig.Frame{Port: port, UDP: port%3 == 0, V6: port%2 == 0, Payload: 60}.Build()
		n.Inject(f)
		t.same(n.Receive(1)[0], f)
	}
}
