// Package qemu drives the network device models of QEMU, which this project did
// not write, as bus.Devices. A [Bus] is a QEMU without a guest, with one or more
// of them: its only processor sleeps, and registers are reached over QEMU's test
// protocol.
//
// What lives here is QEMU's process (bus.go, process.go, bios.go) and the ways into
// it: qtest for registers and configuration space (qtest.go, function.go,
// config.go), QMP for memory and links (qmp.go, dma.go, device.go), the ports that
// devices are behind, which reset them (port.go), and for interrupts ivshmem
// (ivshmem.go, irq.go). What the models' networks are connected to is described
// here (netdev.go), and lives elsewhere.
//
// # Memory
//
// Memory that is mapped for DMA becomes a memory module of the machine, plugged in
// while it runs, at an address that has to lie from [DMABase] on: everything below
// is the machine's own. It has to be in a file, from the file's start. Each device
// has a part of the addresses to itself; nothing keeps it from the others'.
//
// # Interrupts
//
// Message interrupts are writes to the doorbell register of an ivshmem device,
// which makes QEMU signal an eventfd of ours; a goroutine for each vector passes
// that on to whom SetInterrupts names. INTx is seen as a change of the interrupt
// controller's inputs, of which each device has its own. So an interrupt from
// before a register was read may still be under way after it, as it may on
// hardware.
//
// # What is different from hardware
//
// DMA to addresses that are not mapped is not noticed: QEMU reads zeros and drops
// writes. A register write is posted; QEMU's answer to it is not waited for, and
// the next read is. QEMU aborts on some driver mistakes: the device is gone then.
//
// It works with Debian 12's QEMU 7.2; sources of the protocols are QEMU's
// docs/devel/qtest.rst, docs/specs/ivshmem-spec.rst and qapi/.
package qemu
