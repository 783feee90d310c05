// Package sim is the scaffold on which device models stand: a PCI function in
// this process ([Device], a bus.Device), what a model may use of the machine
// around it ([Host]), and the virtual wire that carries frames between models
// ([Wire]).
//
// What lives here is true of every device in software: configuration space,
// interrupts, checked DMA, the worker goroutine, and the transport of frames,
// with the segmentation and checksums that a frame needs when its receiver
// cannot take it as its sender made it. What a particular NIC does lives in the
// package of its model. Nothing here knows a driver.
package sim
