package netstack

import (
	"sync"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"nicd/framework"
)

const (
	// maxBacklog is how many packets wait in the port for a full transmit queue.
	// TCP's windows bound what is in flight long before; this bounds the rest.
	maxBacklog = 4096
	// maxSuperFrame is the longest packet the stack hands over for TSO: what
	// fits an IPv4 packet with Ethernet and the longest TCP headers.
	maxSuperFrame = 65535 - header.EthernetMinimumSize - 60
)

// endpoint is the stack's network device: a stack.LinkEndpoint over a
// framework.Interface.
type endpoint struct {
	iface      framework.Interface
	dispatcher atomic.Pointer[stack.NetworkDispatcher]
	current    atomic.Pointer[settings]
	dropped    atomic.Uint64

	// The stack asks Capabilities at each packet whether to verify checksums, so
	// what it answers has to hold while packets are injected: verified ones with
	// the lock shared, others with it held alone and verify set.
	checksums sync.RWMutex
	verify    atomic.Bool
}

var (
	_ stack.LinkEndpoint = (*endpoint)(nil)
	_ stack.GSOEndpoint  = (*endpoint)(nil)
)

// settings are what the endpoint knows of its interface. They do not change;
// SettingsChanged puts others in their place.
type settings struct {
	mac    tcpip.LinkAddress
	mtu    uint32       // what fits behind the Ethernet header
	queues []*sendQueue // those in use
	unused []*sendQueue // those that were in use when the interface had more
}

func (e *endpoint) attach(i framework.Interface) {
	e.iface = i
	e.current.Store(&settings{})
	e.follow()
}

// follow takes over the interface's settings. It is called by one goroutine at a
// time.
func (e *endpoint) follow() {
	s := e.iface.Settings()
	old := e.current.Load()
	all := append(append([]*sendQueue(nil), old.queues...), old.unused...)
	n := e.iface.Queues()
	for q := len(all); q < n; q++ {
		all = append(all, newSendQueue(e.iface, q))
	}
	e.current.Store(&settings{
		mac: tcpip.LinkAddress(s.MAC[:]), mtu: uint32(s.MTU),
		queues: all[:n:n], unused: all[n:],
	})
	// What waits in a queue that is not in use is sent all the same: to another
	// one, by the interface.
	for _, q := range all[n:] {
		q.send(nil, uint32(s.MTU))
	}
}

// deliver copies packets into the stack's memory and injects them. Checksums
// that nobody has vouched for are left for the stack to verify.
func (e *endpoint) deliver(queue int, b *framework.Batch) {
	if d := e.dispatcher.Load(); d != nil {
		for from := 0; from < len(b.Packets); {
			from = e.injectRun(*d, b, from)
		}
	}
	e.release(queue, b)
}

// injectRun injects the packets from index from on that are alike in whether
// their checksums are verified, and returns the index of the first that is not.
func (e *endpoint) injectRun(d stack.NetworkDispatcher, b *framework.Batch, from int) int {
	verified := b.Packets[from].Flags&framework.ChecksumVerified != 0
	if verified {
		e.checksums.RLock()
		defer e.checksums.RUnlock()
	} else {
		e.checksums.Lock()
		defer e.checksums.Unlock()
		e.verify.Store(true)
		defer e.verify.Store(false)
	}
	i := from
	for ; i < len(b.Packets); i++ {
		p := &b.Packets[i]
		if (p.Flags&framework.ChecksumVerified != 0) != verified {
			break
		}
		if p.Flags&framework.VLANTag == 0 && p.Len > header.EthernetMinimumSize {
			e.inject(d, p, b.Fragments(i))
		}
	}
	return i
}

func (e *endpoint) release(queue int, b *framework.Batch) {
	var buffers [128]framework.Buffer
	n := 0
	for i := range b.Frags {
		buffers[n] = b.Frags[i].Buffer
		if n++; n == len(buffers) {
			e.iface.Release(queue, buffers[:])
			n = 0
		}
	}
	if n > 0 {
		e.iface.Release(queue, buffers[:n])
	}
}

func (e *endpoint) inject(d stack.NetworkDispatcher, p *framework.Packet, frags []framework.Fragment) {
	memory := e.iface.Buffers()
	first := memory.Bytes(frags[0])
	if len(first) < header.EthernetMinimumSize {
		return
	}
	eth := header.Ethernet(first)
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{
		Payload: copyIn(memory, frags, header.EthernetMinimumSize, int(p.Len)-header.EthernetMinimumSize),
	})
	pkt.PktType = packetType(eth.DestinationAddress(), e.current.Load().mac)
	d.DeliverNetworkPacket(eth.Type(), pkt)
	pkt.DecRef()
}

// chunkSize is how much of a packet lies in one piece of the stack's memory. The
// stack clears such a piece, in sizes of powers of two, before it is filled: a
// piece that stays in a processor's first cache is cleared for little.
const chunkSize = 16 << 10

// copyIn copies size bytes of a packet, from offset on, into the stack's memory.
func copyIn(memory *framework.Buffers, frags []framework.Fragment, offset, size int) (to buffer.Buffer) {
	from := memory.Bytes(frags[0])[offset:]
	for size > 0 {
		view := buffer.NewViewSize(min(size, chunkSize))
		size -= view.Size()
		for rest := view.AsSlice(); len(rest) > 0; {
			if len(from) == 0 {
				frags = frags[1:]
				from = memory.Bytes(frags[0])
			}
			n := copy(rest, from)
			rest, from = rest[n:], from[n:]
		}
		_ = to.Append(view)
	}
	return to
}

func packetType(to, own tcpip.LinkAddress) tcpip.PacketType {
	switch {
	case to == own:
		return tcpip.PacketHost
	case to == header.EthernetBroadcastAddress:
		return tcpip.PacketBroadcast
	case header.IsMulticastEthernetAddress(to):
		return tcpip.PacketMulticast
	}
	return tcpip.PacketOtherHost
}

// WritePackets implements stack.LinkWriter. It never reports a full queue:
// TCP would take that for loss. What does not fit waits in the port.
func (e *endpoint) WritePackets(list stack.PacketBufferList) (int, tcpip.Error) {
	s := e.current.Load()
	pkts := list.AsSlice()
	for start := 0; start < len(pkts); {
		q := s.queueOf(pkts[start])
		end := start + 1
		for end < len(pkts) && s.queueOf(pkts[end]) == q {
			end++
		}
		e.dropped.Add(uint64(s.queues[q].send(pkts[start:end], s.mtu)))
		start = end
	}
	return len(pkts), nil
}

func (s *settings) queueOf(pkt *stack.PacketBuffer) int {
	return int(pkt.Hash % uint32(len(s.queues)))
}

// detach leaves the interface alone from now on.
func (e *endpoint) detach() {
	s := e.current.Load()
	if s == nil {
		return // it never had one
	}
	for _, q := range s.queues {
		q.close()
	}
	for _, q := range s.unused {
		q.close()
	}
}

// flush sends what waits for a queue: its own backlog, and what is left in those
// that are not in use and that it stands in for.
func (e *endpoint) flush(queue int) {
	s := e.current.Load()
	if queue < len(s.queues) {
		s.queues[queue].send(nil, s.mtu)
	}
	for _, q := range s.unused {
		if q.queue%len(s.queues) == queue {
			q.send(nil, s.mtu)
		}
	}
}

// sendQueue is one transmit queue's backlog and the batch that its packets are
// turned into.
type sendQueue struct {
	iface   framework.Interface
	queue   int
	mu      sync.Mutex
	backlog []*stack.PacketBuffer
	buffers []framework.Buffer // taken from the interface, not yet used
	batch   *framework.Batch
	mtu     uint32 // in force, while mu is held
	closed  bool
}

func newSendQueue(i framework.Interface, queue int) *sendQueue {
	return &sendQueue{
		iface: i, queue: queue,
		buffers: make([]framework.Buffer, 0, 2*framework.MaxFragments),
		batch:   framework.NewBatch(64, 64+framework.MaxFragments),
	}
}

// send sends the backlog and then pkts, as far as there is room, keeps the rest
// and returns how many it had to drop.
func (s *sendQueue) send(pkts []*stack.PacketBuffer, mtu uint32) (dropped int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return len(pkts)
	}
	s.mtu = mtu
	if len(s.backlog) > 0 {
		sent := s.sendAll(s.backlog)
		for _, pkt := range s.backlog[:sent] {
			pkt.DecRef()
		}
		s.backlog = append(s.backlog[:0], s.backlog[sent:]...)
	}
	if len(s.backlog) == 0 {
		pkts = pkts[s.sendAll(pkts):]
	}
	for _, pkt := range pkts {
		if len(s.backlog) == maxBacklog {
			dropped++
			continue
		}
		s.backlog = append(s.backlog, pkt.IncRef())
	}
	return dropped
}

// close drops what waits and gives buffers back. Nothing is sent any more: a
// timer of the stack's can come late, after the interface and its memory.
func (s *sendQueue) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, pkt := range s.backlog {
		pkt.DecRef()
	}
	s.backlog = nil
	s.iface.Release(s.queue, s.buffers)
	s.buffers = nil
}

// sendAll copies and sends packets until the queue is full and returns how many
// went out.
func (s *sendQueue) sendAll(pkts []*stack.PacketBuffer) (sent int) {
	for sent < len(pkts) {
		s.batch.Reset()
		for _, pkt := range pkts[sent:] {
			if !s.add(pkt) {
				break
			}
		}
		n := len(s.batch.Packets)
		if n == 0 {
			// No buffers. An empty Send asks to be told when there are some.
			s.iface.Send(s.queue, s.batch)
			return sent
		}
		taken := s.iface.Send(s.queue, s.batch)
		sent += taken
		if taken < n {
			s.takeBack(taken)
			return sent
		}
	}
	return sent
}

// takeBack keeps the buffers of packets that the interface did not take.
func (s *sendQueue) takeBack(from int) {
	for i := from; i < len(s.batch.Packets); i++ {
		for _, f := range s.batch.Fragments(i) {
			s.buffers = append(s.buffers, f.Buffer)
		}
	}
}

// add copies a packet into buffers and appends it to the batch, unless there is
// no room in the batch or there are no buffers.
func (s *sendQueue) add(pkt *stack.PacketBuffer) bool {
	memory := s.iface.Buffers()
	size := pkt.Size()
	frags := (size + int(memory.Size) - 1) / int(memory.Size)
	if !s.batch.Room(frags) || !s.have(frags) {
		return false
	}
	b := s.batch
	p := framework.Packet{First: uint32(len(b.Frags)), Frags: uint16(frags), Len: uint32(size), Hash: pkt.Hash, Flags: framework.HashValid}
	for left := size; left > 0; {
		n := min(left, int(memory.Size))
		buf := s.buffers[len(s.buffers)-1]
		s.buffers = s.buffers[:len(s.buffers)-1]
		b.Frags = append(b.Frags, framework.Fragment{Buffer: buf, Offset: framework.RxOffset, Len: uint32(n)})
		left -= n
	}
	copyOut(memory, b.Frags[p.First:], pkt)
	describe(&p, pkt, s.mtu)
	b.Packets = append(b.Packets, p)
	return true
}

func (s *sendQueue) have(n int) bool {
	if len(s.buffers) < n {
		have := len(s.buffers)
		got := s.iface.Alloc(s.queue, s.buffers[have:cap(s.buffers)])
		s.buffers = s.buffers[:have+got]
	}
	return len(s.buffers) >= n
}

func copyOut(memory *framework.Buffers, frags []framework.Fragment, pkt *stack.PacketBuffer) {
	to := memory.Bytes(frags[0])
	views, offset := pkt.AsViewList()
	for v := views.Front(); v != nil; v = v.Next() {
		from := v.AsSlice()
		if offset > 0 {
			skip := min(offset, len(from))
			from, offset = from[skip:], offset-skip
		}
		for len(from) > 0 {
			if len(to) == 0 {
				frags = frags[1:]
				to = memory.Bytes(frags[0])
			}
			n := copy(to, from)
			from, to = from[n:], to[n:]
		}
	}
}

// describe translates the stack's offload request.
//
// The size of a connection's segments is the stack's choice when it is opened, by
// the MTU of that moment, and stays when the MTU becomes smaller later (RFC 1191's
// messages, which the stack would listen to, come from routers). So segments that
// are too long now are left to whoever segments, the device or the engine.
func describe(p *framework.Packet, pkt *stack.PacketBuffer, mtu uint32) {
	gso := &pkt.GSOOptions
	if gso.Type == stack.GSONone {
		return
	}
	p.Flags |= framework.TCP
	switch gso.Type {
	case stack.GSOTCPv4:
		p.Flags |= framework.IPv4
	case stack.GSOTCPv6:
		p.Flags |= framework.IPv6
	}
	p.HeaderLen = uint16(pkt.HeaderSize())
	if gso.NeedsCsum {
		p.Flags |= framework.ChecksumPartial
		p.ChecksumStart = header.EthernetMinimumSize + gso.L3HdrLen
		p.ChecksumOffset = gso.CsumOffset
	}
	size := gso.MSS
	if fits := int(mtu) + header.EthernetMinimumSize - pkt.HeaderSize(); int(size) > fits {
		size = uint16(max(fits, 1))
	}
	if pkt.Data().Size() > int(size) {
		p.Flags |= framework.Segment
		p.SegmentSize = size
	}
}

// MTU implements stack.LinkEndpoint: what fits behind the Ethernet header.
func (e *endpoint) MTU() uint32 { return e.current.Load().mtu }

// SetMTU implements stack.LinkEndpoint. The MTU is the interface's; nicd sets it.
func (e *endpoint) SetMTU(uint32) {}

// MaxHeaderLength implements stack.LinkEndpoint.
func (e *endpoint) MaxHeaderLength() uint16 { return header.EthernetMinimumSize }

// LinkAddress implements stack.LinkEndpoint.
func (e *endpoint) LinkAddress() tcpip.LinkAddress { return e.current.Load().mac }

// SetLinkAddress implements stack.LinkEndpoint. The address is the interface's.
func (e *endpoint) SetLinkAddress(tcpip.LinkAddress) {}

// Capabilities implements stack.LinkEndpoint. Whether receive checksums are
// vouched for is a matter of the packet that is being injected; who asks for
// another reason takes no notice of that capability.
func (e *endpoint) Capabilities() stack.LinkEndpointCapabilities {
	if e.verify.Load() {
		return stack.CapabilityResolutionRequired
	}
	return stack.CapabilityResolutionRequired | stack.CapabilityRXChecksumOffload
}

// GSOMaxSize implements stack.GSOEndpoint.
func (e *endpoint) GSOMaxSize() uint32 { return maxSuperFrame }

// SupportedGSO implements stack.GSOEndpoint. Where the device has no TSO, the
// engine segments; the stack need not know.
func (e *endpoint) SupportedGSO() stack.SupportedGSO { return stack.HostGSOSupported }

// Attach implements stack.LinkEndpoint.
func (e *endpoint) Attach(d stack.NetworkDispatcher) {
	if d == nil {
		e.dispatcher.Store(nil)
		return
	}
	e.dispatcher.Store(&d)
}

// IsAttached implements stack.LinkEndpoint.
func (e *endpoint) IsAttached() bool { return e.dispatcher.Load() != nil }

// Wait implements stack.LinkEndpoint; the endpoint has no goroutines.
func (e *endpoint) Wait() {}

// Close implements stack.LinkEndpoint.
func (e *endpoint) Close() { e.dispatcher.Store(nil) }

// SetOnCloseAction implements stack.LinkEndpoint.
func (e *endpoint) SetOnCloseAction(func()) {}

// ARPHardwareType implements stack.LinkEndpoint.
func (e *endpoint) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareEther }

// AddHeader implements stack.LinkEndpoint.
func (e *endpoint) AddHeader(pkt *stack.PacketBuffer) {
	eth := header.Ethernet(pkt.LinkHeader().Push(header.EthernetMinimumSize))
	eth.Encode(&header.EthernetFields{
		SrcAddr: pkt.EgressRoute.LocalLinkAddress,
		DstAddr: pkt.EgressRoute.RemoteLinkAddress,
		Type:    pkt.NetworkProtocolNumber,
	})
}

// ParseHeader implements stack.LinkEndpoint. Ethernet headers are taken off
// before packets enter the stack.
func (e *endpoint) ParseHeader(*stack.PacketBuffer) bool { return true }
