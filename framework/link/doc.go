// Package link is the shared memory between nicd and an engine: packets one
// way and the other, buffers back, with payload staying where it is. It is the
// same whether the engine runs in a driver plugin's process or in nicd's own.
//
// There is one arena per interface, so that a plugin cannot see another's
// memory. In it, per queue pair, lie four rings:
//
//	rx         engine -> nicd  received packets
//	rx return  nicd -> engine  their buffers
//	tx         nicd -> engine  packets to send
//	tx return  engine -> nicd  their buffers
//
// Each has a single producer and a single consumer and is large enough for
// every buffer that can be in it, so that only tx ever fills. An index is
// published once a batch. A consumer that is about to sleep arms a flag in
// shared memory and looks once more; only then does the producer write to its
// eventfd.
//
// [Host] is nicd's end and a framework.Interface, [Lower] the engine's end and
// an engine.Upper. They do not trust each other alike: the host copies out,
// checks and only then uses whatever comes from an engine, keeps its own record
// of who owns each buffer, and stops the link with a [Violation] at the first
// thing that is wrong. The lower end believes nicd, but garbage does not crash
// it either.
//
// What does not live here: processes and control ([nicd/framework/plugin]) and
// what the counters in the arena mean (package engine).
package link
