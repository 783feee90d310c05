// Package ring walks descriptor rings. It holds what every driver would
// otherwise repeat and some would get wrong: where an index wraps, which bit
// says who owns a descriptor, in which order a packet is published, and that
// one slot always stays empty. With it a queue is its descriptor format and
// little else.
//
// What lives here: three kinds of ring over memory that driver and device both see.
//
//   - [Command]: the driver writes, and a generation bit in each descriptor,
//     which flips at every wrap, says how far it got (vmxnet3's transmit and
//     receive rings).
//   - [Completion]: the device writes, the driver consumes while the
//     generation bit is its own (vmxnet3's completion rings).
//   - [Done]: the driver writes and moves a tail register, the device sets a
//     done bit in the same descriptor (the e1000 family).
//
// The bookkeeping that goes with them.
//
//   - [Flight]: which transmit packets are finished once a descriptor is.
//   - [Slots]: which buffer a descriptor has.
//
// And what is made of both.
//
//   - [Transmit] and [Receive]: all of a queue but its descriptors' format, for
//     devices with done bits and tail registers.
//   - [CommandTransmit] and [CommandReceive]: the same for devices with generation
//     bits and completion rings.
//   - [Posted]: the receive buffers of a ring with generation bits, of which a
//     device may pass over some.
//
// And [Shared], which is memory outside of rings seen as a struct. Rings and
// structs are made in memory that the caller has, or, by the functions named
// Alloc, in memory that a framework.DMA gives.
//
// What does not live here: registers other than tails, what a descriptor means,
// buffers.
//
// # Rules for all rings
//
// A ring and its bookkeeping belong to one goroutine at a time. No method
// allocates, locks or blocks. Indices are positions in the ring, from 0 to
// Size-1, in the form that device registers and completions use.
//
// The descriptor type D is a struct without pointers that has the layout of the
// device's descriptor, in little-endian fields; it is checked when a ring is
// made. The bit that says who owns a descriptor lies in one 32-bit word of it,
// named by [Owner]; that word is loaded and published atomically, the rest is
// plain memory. A descriptor that the device has written is handed out as a
// copy, so that it can be checked and then used while the device does what it
// likes.
//
// An index that came from the device may be anything: [Command.Through] and
// [Slots.Take] answer "not outstanding" for a wrong one, and no method reaches
// outside the ring's memory.
package ring
