// Package e1000 models Intel gigabit controllers at register level: the 82540EM
// (8086:100E, PCI, one interrupt pin, legacy receive descriptors), with its
// relatives 82545EM (8086:100F) and 82544GC (8086:100C, which can't throttle
// interrupts), and the 82574L (8086:10D3, PCI Express, MSI-X, two receive and two
// transmit queues, extended and packet split receive descriptors, RSS).
//
// What lives here is what the chips do, from the PCI/PCI-X Family of Gigabit
// Ethernet Controllers Software Developer's Manual ("8254x SDM") and the 82574
// GbE Controller Family Datasheet ("82574 datasheet"): registers, descriptors,
// offloads, filters, interrupts, NVM, PHY, statistics. How implementations are
// known to differ is a [Variation]. The package knows no driver; the tests bring
// their own.
//
// Not modelled: MAC and PHY loopback, wake up and manageability, flash contents
// and NVM writes, half duplex, and descriptor prefetch and late write-back
// (thresholds in RXDCTL and TXDCTL other than LWTHRESH are stored and have no
// effect).
//
// Where the chips' documents leave a driver's mistake undefined, the model does
// what is easiest to notice: a transmit queue that is given nonsense (a TSO
// packet whose PAYLEN is not its payload, memory that is not mapped) stops and
// stays stopped until it is set up anew.
package e1000
