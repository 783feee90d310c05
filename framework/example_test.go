package framework_test

import (
	"fmt"

	"nicd/framework"
)

// A driver declares who merges received segments, and the operator's port sends
// packets on: what comes of it, and why.
func Example() {
	info := framework.Info{Model: "VMXNET3", Revision: 1, Mode: "emulation", Features: framework.AllFeatures}
	quirks, err := framework.ResolveQuirks(framework.QuirkSources{
		Driver: "vmxnet3",
		Declarations: []framework.Declaration{
			framework.LROOwnerQuirk.Is(framework.LROHardwareOnly, framework.Match{}, "the hypervisor merges"),
		},
		Facts:           framework.FactsOf(0x07b0, info, framework.Link{Up: true, Mbps: 10000}),
		InterfaceConfig: []framework.QuirkSetting{{Name: "lro-owner", Value: "hybrid", Origin: "nicd.hcl:12: interface vmx0"}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	plan := framework.ResolveFeatures(framework.FeatureSources{
		Info: info, Quirks: quirks,
		Port: framework.PortNeeds{Name: "forward", Accepts: framework.AllFeatures, ExactSegments: true},
	})
	fmt.Println(plan.LRO)
	for _, reason := range plan.Of(framework.LRO).Reasons {
		fmt.Println("-", reason)
	}
	// Output:
	// software
	// - wanted by default
	// - port forward takes it
	// - quirk lro-owner = hybrid (config nicd.hcl:12: interface vmx0)
	// - offered by VMXNET3 revision 1 in mode emulation
	// - the device can't merge: it does not tell the size of the segments, and port forward sends packets on
	// - software: the engine merges alone
}
