package engine

import "nicd/framework"

// Upper is what an engine delivers to and takes from: nicd, at the other end of
// a link (package link), or a test. All methods work on batches; for each queue
// the receive methods are called by its receive task only, the transmit methods
// by its transmit task only, or by who has that on loan (see SetWaker).
type Upper interface {
	// Deliver hands packets up, in order, and returns how many were taken. The
	// buffers of those belong to the upper side until Reclaim gives them back.
	Deliver(queue int, b *framework.Batch) int
	// Reclaim stores receive buffers that have come back to dst and returns how
	// many.
	Reclaim(queue int, dst []framework.Buffer) int

	// Take fills b, which is empty, with packets to send. Their buffers are the
	// engine's until Complete.
	Take(queue int, b *framework.Batch)
	// Complete gives back buffers of packets that were sent or dropped.
	Complete(queue int, bufs []framework.Buffer)

	// ArmRx and ArmTx say that a task is about to sleep and tell whether there
	// is work after all (buffers to reclaim; packets to take). If not, the
	// queue's waker will be called when there is.
	ArmRx(queue int) bool
	ArmTx(queue int) bool
	// SetWaker sets what to call when a sleeping task has work, at any time. Any
	// goroutine may call it, also when nobody sleeps; it does not block. With
	// Plan.InlineTx tx does the transmit task's work before it returns, if that
	// sleeps: it calls Take, Complete and ArmTx, so the caller holds nothing that
	// those need, and has the device's bell rung.
	SetWaker(queue int, rx, tx func())
}
