package framework

import "strings"

// Features is a set of what a device or the framework can do for packets.
type Features uint32

// Features.
const (
	RxChecksum  Features = 1 << iota // the device verifies checksums
	TxChecksum                       // the device fills in TCP and UDP checksums
	TSO4                             // the device cuts TCP over IPv4
	TSO6                             // the device cuts TCP over IPv6
	LRO                              // received TCP segments are merged; by whom is the LRO owner quirk's business
	VLANStrip                        // the device takes 802.1Q tags out of received frames
	VLANInsert                       // the device puts them into sent ones
	VLANFilter                       // the device drops frames of VLANs not asked for
	RSSHash                          // the device spreads flows over queues
	USO                              // the device cuts UDP, over IPv4 and IPv6: datagrams of one size, as UDP_SEGMENT makes them
	numFeatures = iota
)

var featureNames = [numFeatures]string{
	"rx-csum", "tx-csum", "tso4", "tso6", "lro", "vlan-strip", "vlan-insert", "vlan-filter", "rss", "uso",
}

// Has tells whether all of f are in the set.
func (s Features) Has(f Features) bool { return s&f == f }

// Each calls do for each feature in the set.
func (s Features) Each(do func(Features)) {
	for i := range numFeatures {
		if f := Features(1) << i; s&f != 0 {
			do(f)
		}
	}
}

// AllFeatures is the set of all.
const AllFeatures = Features(1)<<numFeatures - 1

func (s Features) String() string {
	var names []string
	s.Each(func(f Features) {
		for i := range numFeatures {
			if f == Features(1)<<i {
				names = append(names, featureNames[i])
			}
		}
	})
	return strings.Join(names, " ")
}

// FeatureNames are the names of all features, and those of sets of them that
// ParseFeature knows.
func FeatureNames() []string { return append(featureNames[:numFeatures:numFeatures], tsoName) }

const tsoName = "tso" // both versions

// ParseFeature returns the feature of a name; "tso" is both TSO4 and TSO6.
func ParseFeature(name string) (Features, bool) {
	if name == tsoName {
		return TSO4 | TSO6, true
	}
	for i, n := range featureNames {
		if n == name {
			return Features(1) << i, true
		}
	}
	return 0, false
}
