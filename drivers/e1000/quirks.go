package e1000

import "nicd/framework"

// ContextQuirk: whether the device remembers the offload context of earlier
// packets.
var ContextQuirk = framework.NewBoolQuirk(framework.QuirkInfo{
	Name:      "e1000-context-each",
	Doc:       "Every packet with an offload gets a context descriptor of its own; otherwise an equal one is not repeated.",
	Reference: "82574 datasheet 7.2.6, one context for both queues; FreeBSD em(4)",
	Driver:    driverName,
}, true)

// TSOBurstQuirk: how much of a TSO packet one descriptor may carry.
var TSOBurstQuirk = framework.NewIntQuirk(framework.QuirkInfo{
	Name:      "e1000-tso-burst",
	Doc:       "Most bytes that one descriptor of a TSO packet may carry, in multiples of the MSS; more overruns the transmit FIFO. 0 is no limit.",
	Reference: "Linux e1000_main.c, e1000_tso: max_per_txd = min(mss << 2, max_per_txd)",
	Min:       0, Max: 64,
	Driver: driverName,
}, 0)

// subsystemQEMU is what QEMU's e1000e, an 82574L, says unless it is told otherwise:
// Intel's vendor id and no subsystem, where boards have one of their maker's.
const (
	id82574L      = 0x10D3
	subsystemQEMU = 0x8086_0000
)

// quirks are the declarations for all parts: nobody here merges, and then those
// of each part with a parallel bus.
func quirks() []framework.Declaration {
	all := []framework.Declaration{
		framework.LROOwnerQuirk.Is(framework.LROSoftware, framework.Match{}, "none of the family merges segments"),
		framework.VLANOneSwitchQuirk.Is(true, framework.Match{}, "8254x manual 13.4.1, CTRL.VME"),
		framework.TxWithinPageQuirk.Is(true, framework.Match{Device: id82574L, Subsystem: subsystemQEMU, Scattered: true},
			"QEMU net_tx_pkt_add_raw_fragment, of which the e1000e makes use and the e1000s do not"),
		framework.TSOMinLinkQuirk.Is(1000, framework.Match{}, "FreeBSD rG2ddf24f8f525, TSO at 10 and 100 Mbit/s hangs em(4)"),
	}
	for _, c := range chips {
		if c.express {
			continue
		}
		only := framework.Match{Device: c.id}
		all = append(all,
			framework.ResetMethodQuirk.Is(framework.ResetByIORegister, only,
				"FreeBSD e1000_82540.c: no acknowledge of a 64-bit write while resetting"),
			framework.TxSentinelQuirk.Is(true, only, "Linux e1000_tx_map, premature write-back of TSO packets"),
			framework.MinFrameQuirk.Is(60, only, "Linux e1000_xmit_frame: hardware padding corrupts"),
			framework.MaxDescriptorBytesQuirk.Is(4096, only, "Linux e1000_tso, FIFO overrun"),
			TSOBurstQuirk.Is(4, only, "Linux e1000_tso, FIFO overrun"),
			ContextQuirk.Is(false, only, "8254x manual 3.3.6: a context stays until the next of its kind"),
		)
	}
	return all
}
