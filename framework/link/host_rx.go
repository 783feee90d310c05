package link

import (
	"context"
	"runtime"

	"nicd/framework"
)

// A receive batch: packets at a time for a port, and fragments for them.
const (
	rxBatchPackets   = 64
	rxBatchFragments = 256
)

// receive delivers what the engine sends up until the host stops.
func (q *hostQueue) receive(r Receiver) {
	wake := q.self.Load()
	idle := 0
	for {
		state := q.host.state.Load()
		if state == hostBroken {
			return
		}
		n, v := q.deliver(r)
		if v != nil {
			q.host.broken(v)
			return
		}
		if state == hostRunning && q.wanted() && !q.tellSender(r) {
			return
		}
		switch {
		case state == hostStopping:
			q.drain(r)
			return
		case n > 0:
			idle = 0
		case idle < q.host.spin:
			idle++
			runtime.Gosched()
		case !q.rx.arm():
			q.counters.sleeps.Add(1)
			_, _ = wake.Wait(context.Background())
			idle = 0
		}
	}
}

// tellSender calls TxReady if a refused sender can go on. It returns false if
// the engine broke a rule.
func (q *hostQueue) tellSender(r Receiver) bool {
	ready, v := q.retry()
	if v != nil {
		q.host.broken(v)
		return false
	}
	if ready {
		r.TxReady(q.index)
	}
	return true
}

// drain delivers what the engine published before the host was stopped, and no
// more than a ring of it: the engine may be alive.
func (q *hostQueue) drain(r Receiver) {
	for left := int(q.rx.mask) + 1; left > 0; {
		n, v := q.deliver(r)
		if v != nil {
			q.host.broken(v)
			return
		}
		if n == 0 {
			return
		}
		left -= n
	}
}

// deliver takes one batch from the rx ring and hands it to the port. It returns
// how many packets that were; a violation comes after the good ones.
func (q *hostQueue) deliver(r Receiver) (int, *Violation) {
	b := q.batch
	b.Reset()
	entries, v := q.rx.read(b)
	if bad := q.accept(b); bad != nil {
		v = bad
	}
	n := len(b.Packets)
	if n > 0 {
		q.counters.delivered.Add(uint64(n))
		r.Deliver(q.index, b)
	}
	if q.rx.release(entries) {
		q.engine.Load().Signal()
	}
	return n, v
}

// accept checks the packets of b, whose fragments are known to lie in their
// buffers, and takes the buffers from the engine. At the first bad packet b is
// cut off.
func (q *hostQueue) accept(b *framework.Batch) *Violation {
	for i := range b.Packets {
		p := &b.Packets[i]
		if rule, value := checkReceived(p); rule != ruleKept {
			return q.refuse(b, i, rule, value)
		}
		if buf, ok := q.host.owners.claim(b.Fragments(i), ownerEngine, ownerPort); !ok {
			return q.refuse(b, i, RuleOwner, uint64(buf))
		}
	}
	return nil
}

func (q *hostQueue) refuse(b *framework.Batch, i int, rule Rule, value uint64) *Violation {
	at := q.rx.head
	for j := range i {
		at += entriesFor(int(b.Packets[j].Frags))
	}
	b.Packets = b.Packets[:i]
	return q.rx.violation(rule, at, value)
}

// minFrameLen is an Ethernet header.
const minFrameLen = 14

const (
	receivedFlags = framework.VLANTag | framework.HashValid |
		framework.IPv4 | framework.IPv6 | framework.TCP | framework.UDP |
		framework.ChecksumVerified | framework.ChecksumBad | framework.ChecksumPartial |
		framework.Coalesced | framework.SoftwareCoalesced | framework.IPIDFixed | framework.CWRCopied
	bothIP        = framework.IPv4 | framework.IPv6
	bothTransport = framework.TCP | framework.UDP
	bothMerged    = framework.Coalesced | framework.SoftwareCoalesced
	bothChecksums = framework.ChecksumVerified | framework.ChecksumBad
)

// checkReceived checks what a received packet says of itself.
func checkReceived(p *framework.Packet) (Rule, uint64) {
	f := p.Flags
	switch {
	case p.Len < minFrameLen:
		return RuleLength, uint64(p.Len)
	case f&^receivedFlags != 0, f&bothIP == bothIP, f&bothTransport == bothTransport,
		f&bothMerged == bothMerged, f&bothChecksums == bothChecksums:
		return RuleFlags, uint64(f)
	case p.Error != framework.NoDrop:
		return RuleMetadata, uint64(p.Error)
	case uint32(p.HeaderLen) > p.Len:
		return RuleMetadata, uint64(p.HeaderLen)
	case f&framework.ChecksumPartial != 0 && uint32(p.ChecksumStart)+uint32(p.ChecksumOffset)+2 > p.Len:
		return RuleMetadata, uint64(p.ChecksumStart)
	case f&framework.SoftwareCoalesced != 0 && (p.Segments == 0 || p.SegmentSize == 0):
		return RuleMetadata, uint64(p.Segments)
	}
	return ruleKept, 0
}
