// Package vfiouser reaches a device in another process, and lets one be reached,
// over vfio-user: the public protocol that QEMU, SPDK and cloud-hypervisor speak
// (QEMU's docs/interop/vfio-user.rst). [Serve] and [ServeConn] serve any
// bus.Device; [Dial] and [Open] give a bus.Device that another process serves.
//
// What lives here is the protocol: framing and descriptor passing (conn.go),
// message layouts (wire.go, bodies.go), negotiation (version.go), the server and
// the client. Device models do not, and neither does the decision who may
// connect: a unix socket's mode or a socketpair decides that.
//
// # Register access
//
// A register write is a message without a reply (posted); a read waits for its
// reply and so for all writes before it. A server whose device is a
// bus.DoorbellDevice also gives out its doorbell page, as shadow ioeventfds, and
// a client that proposed the capability "nicd_doorbells" uses it as
// bus.Doorbells describes: it rings by storing to the page and posts all other
// writes in the page's queue, signalling the eventfd only while the page's armed
// word says that the device sleeps. The server carries out what is in the queue
// before each message. Any other client may use the page as the protocol says:
// store to a doorbell, then always signal.
//
// # Trust
//
// Each side takes the other for hostile or broken: sizes, counts, ranges,
// descriptors and replies are checked after they were copied out of the socket,
// and what does not fit ends the connection with an error that wraps
// [ErrProtocol]. A server whose client may shrink the files that it gave as DMA
// memory would fault on them; ServeOptions.RequireSealed refuses such files.
//
// # Who it works with
//
// Besides each other: QEMU 11.1.3's vfio-user-pci (Linux's own vmxnet3 and e1000e
// drivers in its guest run on this project's models: INTx to MSI-X, RAM that is
// remapped while it boots, TCP both ways), and libvfio-user's sample client and
// servers as of June 2026.
//
// # What the server leaves out
//
// Messages by which a server reads and writes client memory: memory without a
// descriptor is accepted and remembered (QEMU announces its ROMs so) but the
// device can't access it. Migration. Mapped register areas: one of those would
// make QEMU wait for every register write. The MSI-X table, which every client
// keeps itself: vectors arrive as SET_IRQS. A device has to implement BAR sizing
// in its configuration space for cloud-hypervisor.
package vfiouser
