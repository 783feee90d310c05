// Package vmxnet3 is a device model of VMware's vmxnet3 NIC, revisions 1 to 4, at
// register level: what the device does with the registers, shared memory and
// rings that a driver gives it.
//
// The sources are the public headers and drivers of the device (Linux
// drivers/net/vmxnet3, OpenBSD if_vmxreg.h, DPDK) and the behaviour of QEMU's
// model. Where fielded devices differ from each other, the zero Options behave
// as ESXi's emulation is reported to, and Variations has a knob for the rest.
// The model knows nothing of any driver.
//
// Not modelled: tunnel offloads (transmit descriptors with om = 1, and coalescing
// within a tunnel), ESP hashing, wake-up filters, and what revisions 5 and later
// added but for what Variations has of it.
package vmxnet3
