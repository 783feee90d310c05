package vmxnet3

import "nicd/framework"

// modePassthrough is Info.Mode while hardware serves the queues (UPT). It comes
// and goes, with a migration for one, and with it the device's own LRO.
const modePassthrough = "passthrough"

// LinkInGbpsQuirk: in what the device tells its speed.
var LinkInGbpsQuirk = framework.NewBoolQuirk(framework.QuirkInfo{
	Name:      "vmxnet3-link-in-gbps",
	Doc:       "A link speed of less than 10000 is in Gbit/s, not in Mbit/s.",
	Reference: "Linux vmxnet3_check_link, from revision 9 on",
	Driver:    driverName,
}, false)

// quirks are what is special about a vmxnet3.
var quirks = []framework.Declaration{
	framework.LROOwnerQuirk.Is(framework.LROHardwareOnly, framework.Match{},
		"the hypervisor merges; merging again cost 95 % of throughput (freebsd-net 2020-02); Linux bypasses GRO"),
	framework.LROOwnerQuirk.Is(framework.LROSoftware, framework.Match{Mode: modePassthrough},
		"in UPT nobody merges (netdev 2023-03, lore 20230323200721.27622-1-doshir@vmware.com)"),
	framework.ContiguousHeadersQuirk.Is(true, framework.Match{},
		"OpenBSD vmx(4) c95756fbdbd6: the device drops TSO packets whose headers are in two fragments"),
	framework.TxWithinPageQuirk.Is(true, framework.Match{MaxRevision: 1, Scattered: true},
		"QEMU net_tx_pkt_add_raw_fragment; its vmxnet3 has revision 1 and none later, where ESXi's have more"),
	framework.MetadataOnQuirk.Is(framework.LastCompletion, framework.Match{},
		"Linux, DPDK d08e3c90d4; FreeBSD D23949 dropped every merged packet for reading the first"),
	framework.SkipsRxSlotsQuirk.Is(true, framework.Match{},
		"Linux vmxnet3_rq_rx_complete; QEMU vmxnet3"),
	framework.RxBellQuirk.Is(framework.RxBellOnRequest, framework.Match{},
		"updateRxProd: Linux, DPDK, OpenBSD; an unconditional bell is a VM exit per refill"),
}
