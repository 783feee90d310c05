// Package netstack is a port that ends in a TCP/IP stack of its own, gVisor's,
// in nicd's process: an interface that can talk TCP without root, without a TAP
// device and without the kernel.
//
// What lives here is the seam between the two: frames from an interface's
// buffers into the stack's, packets of the stack into an interface's buffers,
// offloads translated both ways. TCP itself is gVisor's.
package netstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"nicd/framework"
)

const nicID = 1

// Options of a port.
type Options struct {
	// Addresses with their prefixes, IPv4 and IPv6. At least one.
	Addresses []netip.Prefix
	// Gateway for everything else, if valid.
	Gateway netip.Addr
	// BufferBytes is the most that a TCP connection buffers in each direction;
	// 0 is 4 MiB.
	BufferBytes int
}

// Port is a framework.Port. Dial and Listen work from Attach until Close.
type Port struct {
	options Options
	stack   *stack.Stack
	link    *endpoint
}

var (
	_ framework.Port             = (*Port)(nil)
	_ framework.SettingsFollower = (*Port)(nil)
)

// New makes a port that waits for its interface.
func New(o Options) (*Port, error) {
	if len(o.Addresses) == 0 {
		return nil, errors.New("a netstack port needs an address")
	}
	if o.BufferBytes == 0 {
		o.BufferBytes = 4 << 20
	}
	p := &Port{options: o, link: &endpoint{}}
	p.stack = stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4, icmp.NewProtocol6},
	})
	if err := p.tune(); err != nil {
		p.stack.Destroy()
		return nil, err
	}
	return p, nil
}

// tune gives TCP what a fast local link wants: selective acknowledgements and
// buffers of a bandwidth-delay product. RACK (RFC 8985) is off: its timers are
// multiples of a round trip of microseconds, so that a goroutine or plugin that
// waits a few milliseconds for a processor looks like loss, and each time the
// window is halved (measured: 50 to 100 such recoveries in 4 s on two busy
// processors, without a frame lost).
func (p *Port) tune() error {
	most := p.options.BufferBytes
	sack := tcpip.TCPSACKEnabled(true)
	moderate := tcpip.TCPModerateReceiveBufferOption(true)
	cubic := tcpip.CongestionControlOption("cubic")
	noRACK := tcpip.TCPRecovery(0)
	for _, option := range []tcpip.SettableTransportProtocolOption{
		&sack, &moderate, &cubic, &noRACK,
		&tcpip.TCPSendBufferSizeRangeOption{Min: 4 << 10, Default: most, Max: most},
		&tcpip.TCPReceiveBufferSizeRangeOption{Min: 4 << 10, Default: most / 4, Max: most},
	} {
		if err := p.stack.SetTransportProtocolOption(tcp.ProtocolNumber, option); err != nil {
			return fmt.Errorf("netstack: TCP option %T: %s", option, err)
		}
	}
	return nil
}

// Attach implements framework.Port.
func (p *Port) Attach(i framework.Interface) error {
	p.link.attach(i)
	if err := p.stack.CreateNIC(nicID, p.link); err != nil {
		return fmt.Errorf("netstack: %s: %s", i.Name(), err)
	}
	for _, prefix := range p.options.Addresses {
		if err := p.addAddress(prefix); err != nil {
			return err
		}
	}
	if gateway := p.options.Gateway; gateway.IsValid() {
		p.stack.AddRoute(tcpip.Route{
			Destination: defaultRoute(gateway), Gateway: tcpip.AddrFromSlice(gateway.AsSlice()), NIC: nicID,
		})
	}
	return nil
}

func (p *Port) addAddress(prefix netip.Prefix) error {
	address := tcpip.ProtocolAddress{
		Protocol: networkProtocol(prefix.Addr()),
		AddressWithPrefix: tcpip.AddressWithPrefix{
			Address:   tcpip.AddrFromSlice(prefix.Addr().AsSlice()),
			PrefixLen: prefix.Bits(),
		},
	}
	if err := p.stack.AddProtocolAddress(nicID, address, stack.AddressProperties{}); err != nil {
		return fmt.Errorf("netstack: address %s: %s", prefix, err)
	}
	p.stack.AddRoute(tcpip.Route{Destination: address.AddressWithPrefix.Subnet(), NIC: nicID})
	return nil
}

// SettingsChanged implements framework.SettingsFollower. Connections live on, with
// segments that fit the new MTU.
func (p *Port) SettingsChanged() error {
	p.link.follow()
	return nil
}

// Deliver implements framework.Port. Packets are copied into the stack's
// memory, so their buffers go straight back.
func (p *Port) Deliver(queue int, b *framework.Batch) { p.link.deliver(queue, b) }

// TxReady implements framework.Port.
func (p *Port) TxReady(queue int) { p.link.flush(queue) }

// LinkChanged implements framework.Port. The stack has no notion of a carrier:
// packets sent without one are dropped and counted by the interface.
func (p *Port) LinkChanged(framework.Link) {}

// Needs implements framework.Port. An IPv6 address is found by multicast (RFC 4861
// section 7.2.1). The stack sends no UDP packet that would have to be cut.
func (p *Port) Needs() framework.PortNeeds {
	needs := framework.PortNeeds{Name: "netstack", Accepts: framework.AllFeatures &^ (framework.VLANStrip | framework.USO)}
	for _, prefix := range p.options.Addresses {
		needs.AllMulticast = needs.AllMulticast || prefix.Addr().Is6()
	}
	return needs
}

// Close ends all connections and the stack.
func (p *Port) Close() error {
	p.stack.Destroy()
	p.link.detach()
	return nil
}

// Address is the port's address in the network that peer is in or, if it has none there,
// its first of the family of peer.
func (p *Port) Address(peer netip.Addr) (own netip.Prefix, ok bool) {
	for _, prefix := range p.options.Addresses {
		switch {
		case prefix.Contains(peer):
			return prefix, true
		case !ok && prefix.Addr().Is4() == peer.Is4():
			own, ok = prefix, true
		}
	}
	return own, ok
}

// Addresses are the port's addresses, as given.
func (p *Port) Addresses() []netip.Prefix { return p.options.Addresses }

// Dial opens a TCP connection from this port, from the address that Address says: the
// stack would take any, and who has no route to that could not answer.
func (p *Port) Dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	var from tcpip.FullAddress
	if own, ok := p.Address(to.Addr()); ok {
		from = fullAddress(netip.AddrPortFrom(own.Addr(), 0))
	}
	return gonet.DialTCPWithBind(ctx, p.stack, from, fullAddress(to), networkProtocol(to.Addr()))
}

// Listen accepts TCP connections on an address of this port; port 0 picks a
// free one.
func (p *Port) Listen(at netip.AddrPort) (net.Listener, error) {
	return gonet.ListenTCP(p.stack, fullAddress(at), networkProtocol(at.Addr()))
}

// Stats are the stack's totals of what tells a healthy path from a sick one.
type Stats struct {
	Retransmits     uint64 // TCP segments sent again
	Timeouts        uint64 // retransmission timer expirations
	BadSegments     uint64 // TCP segments received with nonsense in them
	BadChecksums    uint64 // TCP segments received with a wrong checksum
	BacklogDropped  uint64 // packets dropped because the interface's queue and the port's were full
	SegmentsSent    uint64
	SegmentsArrived uint64
}

// Stats reads the totals. It may be called by any goroutine.
func (p *Port) Stats() Stats {
	t := p.stack.Stats().TCP
	return Stats{
		Retransmits:     t.Retransmits.Value(),
		Timeouts:        t.Timeouts.Value(),
		BadSegments:     t.InvalidSegmentsReceived.Value(),
		BadChecksums:    t.ChecksumErrors.Value(),
		BacklogDropped:  p.link.dropped.Load(),
		SegmentsSent:    t.SegmentsSent.Value(),
		SegmentsArrived: t.ValidSegmentsReceived.Value(),
	}
}

func networkProtocol(a netip.Addr) tcpip.NetworkProtocolNumber {
	if a.Is4() {
		return ipv4.ProtocolNumber
	}
	return ipv6.ProtocolNumber
}

func fullAddress(a netip.AddrPort) tcpip.FullAddress {
	return tcpip.FullAddress{NIC: nicID, Addr: tcpip.AddrFromSlice(a.Addr().AsSlice()), Port: a.Port()}
}

func defaultRoute(gateway netip.Addr) tcpip.Subnet {
	zero := tcpip.AddressWithPrefix{Address: tcpip.AddrFromSlice(make([]byte, gateway.BitLen()/8))}
	return zero.Subnet()
}
