package framework

import (
	"fmt"
	"strings"
)

// SoftwareFeatures are those that the framework can do itself.
const SoftwareFeatures = TxChecksum | TSO4 | TSO6 | USO | LRO | VLANInsert

// FeatureWant is what the operator wants of a feature.
type FeatureWant uint8

// Wants. Unset is WantOn: by the device if it can, otherwise by the framework
// if that can.
const (
	WantOn       FeatureWant = iota
	WantOff                  // by nobody
	WantSoftware             // by the framework, whatever the device offers
)

// FeatureSetting is what the operator wants of the features in Features.
type FeatureSetting struct {
	Features Features
	Want     FeatureWant
	Origin   string // where, for messages: "nicd.hcl:12: interface vmx0"
}

// FeatureSources is all that bears on the features of one device.
type FeatureSources struct {
	Wanted []FeatureSetting // a later one wins
	Info   Info
	Link   Link // as last read; zero before that
	Quirks *Resolution
	Port   PortNeeds
}

// FeatureState says who does a feature.
type FeatureState uint8

// States.
const (
	FeatureOff      FeatureState = iota
	FeatureOn                    // the device (for LRO: perhaps together with the framework)
	FeatureSoftware              // the framework
)

func (s FeatureState) String() string {
	return [...]string{"off", "on", "software"}[s]
}

// MarshalText makes a state its name in JSON.
func (s FeatureState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// FeatureStatus is a feature's effective state and why.
type FeatureStatus struct {
	Feature Features
	State   FeatureState
	// Reasons is the chain that led to the state, in the order in which it was
	// asked: operator, port, device, quirks, other features, fallback. The last
	// one is what decided.
	Reasons []string
}

// FeaturePlan is what ResolveFeatures decided.
type FeaturePlan struct {
	// Device is what the device is to do: Settings.Features.
	Device Features
	// Usable is what the port may count on, whoever does it.
	Usable Features
	// LRO is who merges received segments: Plan.LRO of the engine.
	LRO LROOwner
	// Status has every feature, in the order of their bits.
	Status []FeatureStatus
}

// Of is the status of one feature.
func (p *FeaturePlan) Of(f Features) FeatureStatus {
	for _, s := range p.Status {
		if s.Feature == f {
			return s
		}
	}
	return FeatureStatus{Feature: f}
}

// ResolveFeatures works out the effective features: wanted by the operator,
// taken by the port, offered by the device, allowed by quirks; what the device
// may not do the framework does if it can. Nothing is ignored silently: every
// state comes with its chain of reasons.
func ResolveFeatures(s FeatureSources) *FeaturePlan {
	r := &featureResolver{FeatureSources: s, plan: &FeaturePlan{}}
	for _, f := range resolveOrder {
		if f == LRO {
			r.resolveLRO()
		} else {
			r.resolve(f)
		}
	}
	AllFeatures.Each(func(f Features) { r.plan.Status = append(r.plan.Status, r.done[f]) })
	return r.plan
}

// resolveOrder has each feature after those that it depends on.
var resolveOrder = [numFeatures]Features{
	RxChecksum, TxChecksum, TSO4, TSO6, USO, LRO, VLANStrip, VLANInsert, VLANFilter, RSSHash,
}

type featureResolver struct {
	FeatureSources
	plan  *FeaturePlan
	done  map[Features]FeatureStatus
	chain []string
}

func (r *featureResolver) say(format string, args ...any) {
	r.chain = append(r.chain, fmt.Sprintf(format, args...))
}

// end records f's state and adds it to the plan.
func (r *featureResolver) end(f Features, s FeatureState) {
	if r.done == nil {
		r.done = make(map[Features]FeatureStatus)
	}
	r.done[f] = FeatureStatus{Feature: f, State: s, Reasons: r.chain}
	r.chain = nil
	if s != FeatureOff {
		r.plan.Usable |= f
	}
	if s == FeatureOn {
		r.plan.Device |= f
	}
}

// resolve decides any feature but LRO.
func (r *featureResolver) resolve(f Features) {
	want, ok := r.wanted(f)
	if !ok {
		r.end(f, FeatureOff)
		return
	}
	if f&(TSO4|TSO6|USO) != 0 {
		if r.done[TxChecksum].State == FeatureOff {
			r.say("off: needs tx-csum, which is off")
			r.end(f, FeatureOff)
			return
		}
	}
	if want != WantSoftware && r.offered(f) && r.allowed(f) {
		r.end(f, FeatureOn)
		return
	}
	if text := fallbacks[f]; text != "" {
		r.say("software: %s", text)
		r.end(f, FeatureSoftware)
		return
	}
	r.say("off: the framework has no software for it")
	r.end(f, FeatureOff)
}

var fallbacks = map[Features]string{
	TxChecksum: "the engine fills in checksums",
	TSO4:       "the engine segments",
	TSO6:       "the engine segments",
	USO:        "the engine segments",
	VLANInsert: "the engine writes the tag into the frame",
}

// wanted asks the operator and the port, without whom nobody does anything.
func (r *featureResolver) wanted(f Features) (FeatureWant, bool) {
	want, origin := WantOn, ""
	for _, w := range r.Wanted {
		if w.Features.Has(f) {
			want, origin = w.Want, w.Origin
		}
	}
	switch {
	case want == WantOff:
		r.say("off: %s", operator(origin))
		return want, false
	case want == WantSoftware:
		r.say("wanted in software: %s", operator(origin))
	case origin != "":
		r.say("wanted: %s", operator(origin))
	default:
		r.say("wanted by default")
	}
	if !r.Port.Accepts.Has(f) {
		r.say("off: port %s does not take it", r.Port.Name)
		return want, false
	}
	r.say("port %s takes it", r.Port.Name)
	return want, true
}

func (r *featureResolver) offered(f Features) bool {
	device := r.Info.Model
	if r.Info.Revision != 0 {
		device = fmt.Sprintf("%s revision %d", device, r.Info.Revision)
	}
	if r.Info.Mode != "" {
		device += " in mode " + r.Info.Mode
	}
	if !r.Info.Features.Has(f) {
		r.say("not offered by %s", device)
		return false
	}
	r.say("offered by %s", device)
	return true
}

// allowed asks the quirks and the features that f needs the device to do.
func (r *featureResolver) allowed(f Features) bool {
	switch f {
	case RxChecksum:
		trust, why := choice[ChecksumTrust](r.Quirks, ChecksumTrustQuirk.Info())
		if trust == TrustNothing {
			r.say("not allowed: %s", why)
			return false
		}
	case TSO4, TSO6:
		return r.sumsAllow() && r.linkAllowsTSO()
	case USO:
		return r.sumsAllow()
	case VLANInsert:
		return r.insertAllowed()
	}
	return true
}

// insertAllowed: a port without vlan-strip must not get packets whose tags the
// device took out because it was to insert others.
func (r *featureResolver) insertAllowed() bool {
	one, why := choice[int](r.Quirks, VLANOneSwitchQuirk.Info())
	if s := r.done[VLANStrip].State; one != 0 && s != FeatureOn {
		r.say("not allowed while vlan-strip is %s: %s", s, why)
		return false
	}
	return true
}

// sumsAllow: a device that cuts packets makes a checksum for each piece.
func (r *featureResolver) sumsAllow() bool {
	if s := r.done[TxChecksum].State; s != FeatureOn {
		r.say("needs the device to do tx-csum, which is %s", s)
		return false
	}
	return true
}

func (r *featureResolver) linkAllowsTSO() bool {
	least, why := choice[int](r.Quirks, TSOMinLinkQuirk.Info())
	if r.Link.Up && r.Link.Mbps < least {
		r.say("not allowed on a link of %d Mbit/s: %s", r.Link.Mbps, why)
		return false
	}
	return true
}

// choice is a quirk's effective value and the words for it.
func choice[T ~int | ~uint8](r *Resolution, q *QuirkInfo) (T, string) {
	value, because := q.Default, "default"
	if r != nil {
		if v, ok := r.Lookup(q.Name); ok {
			value, because = v.Value, v.Because
		}
	}
	n, _ := q.parse(value) // a Resolution holds checked values only
	return T(n), fmt.Sprintf("quirk %s = %s (%s)", q.Name, value, because)
}

// String is the status on one line: "tso4: software: REASON; REASON".
func (s FeatureStatus) String() string {
	return fmt.Sprintf("%v: %v: %s", s.Feature, s.State, strings.Join(s.Reasons, "; "))
}
