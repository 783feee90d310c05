package link

import "fmt"

// Rule is something that the other end of a link must keep.
type Rule uint8

// Rules, each checked by the host for everything that comes from an engine.
const (
	ruleKept           Rule = iota
	RuleIndex               // an index is more than a ring ahead, or goes back
	RuleTruncated           // a packet's entries were not published together
	RuleFragmentCount       // no fragments, or more than framework.MaxFragments
	RuleFragmentBounds      // a fragment is empty or not inside its buffer
	RuleLength              // the fragments' lengths do not add up to the packet's, or it is too long or short
	RuleFlags               // flags that a received packet cannot have, or that exclude each other
	RuleMetadata            // offsets outside the packet, an error code, coalescing without segments
	RuleBuffer              // there is no such buffer
	RuleOwner               // the buffer is not the engine's: delivered or returned twice
)

func (r Rule) String() string {
	if int(r) >= len(ruleNames) {
		return "unknown rule"
	}
	return ruleNames[r]
}

var ruleNames = [...]string{
	"kept", "index out of range", "truncated packet", "fragment count", "fragment out of bounds",
	"packet length", "packet flags", "packet metadata", "no such buffer", "buffer not owned",
}

// Violation is the error of a link whose other end broke a rule. The link has
// stopped.
type Violation struct {
	Interface string
	Queue     int
	Ring      string // "rx", "rx-return", "tx", "tx-return"
	Rule      Rule
	Index     uint32 // the ring's index where it was found
	Value     uint64 // what was found there: an index, a count, a buffer, flags
}

func (v *Violation) Error() string {
	return fmt.Sprintf("%s: link queue %d %s ring, entry %d: %v (%#x)",
		v.Interface, v.Queue, v.Ring, v.Index, v.Rule, v.Value)
}
