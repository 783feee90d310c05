package framework

// This file decides who merges received TCP segments. The rules:
//
//   - The lro-owner quirk names who may. Under hardware-only the toggle reaches
//     only the device: no software takes over when the device may not merge.
//   - A device that merges must also verify checksums: it leaves the merged
//     packet's checksum stale, so without a verdict the packet looks broken
//     (netdev 2019-06-04, vmxnet3: turn off lro when rxcsum is disabled). The
//     software engine verifies what nobody has verified, so it needs none.
//   - A port that sends packets on has to cut them again, and can't take a
//     merged packet whose segments' size is not known (moby/moby 32023, FreeBSD
//     bug 219672). The software engine always knows.

// resolveLRO decides the feature LRO and the effective owner.
func (r *featureResolver) resolveLRO() {
	want, ok := r.wanted(LRO)
	if !ok {
		r.end(LRO, FeatureOff)
		return
	}
	owner, why := choice[LROOwner](r.Quirks, LROOwnerQuirk.Info())
	r.say("%s", why)
	switch owner {
	case LRONone:
		r.say("off: nobody may merge")
		r.endLRO(LRONone)
	case LROSoftware:
		r.say("software: the engine merges, the device does not")
		r.endLRO(LROSoftware)
	case LROHardwareOnly:
		if r.hardwareMerges(want) {
			r.endLRO(LROHardwareOnly)
			return
		}
		r.say("off: only the device may merge, and it does not")
		r.endLRO(LRONone)
	case LROHybrid:
		if r.hardwareMerges(want) {
			r.say("the engine merges what the device left")
			r.endLRO(LROHybrid)
			return
		}
		r.say("software: the engine merges alone")
		r.endLRO(LROSoftware)
	}
}

func (r *featureResolver) endLRO(owner LROOwner) {
	r.plan.LRO = owner
	switch owner {
	case LRONone:
		r.end(LRO, FeatureOff)
	case LROSoftware:
		r.end(LRO, FeatureSoftware)
	default:
		r.end(LRO, FeatureOn)
	}
}

// hardwareMerges tells whether the device may and can merge.
func (r *featureResolver) hardwareMerges(want FeatureWant) bool {
	if want == WantSoftware || !r.offered(LRO) {
		return false
	}
	if s := r.done[RxChecksum].State; s != FeatureOn {
		r.say("the device can't merge: that needs rx-csum, which is %s", s)
		return false
	}
	if r.Port.ExactSegments && !r.Info.CoalescedSizeKnown {
		r.say("the device can't merge: it does not tell the size of the segments, and port %s sends packets on", r.Port.Name)
		return false
	}
	r.say("the device merges")
	return true
}
