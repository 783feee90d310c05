package tap

import (
	"encoding/binary"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"nicd/framework"
	"nicd/port/offload"
)

// queue is one queue of the Linux interface: its reader, which takes what the
// kernel sends, and its writer, which any goroutine that delivers may be.
type queue struct {
	port   *Port
	file   *os.File
	conn   syscall.RawConn
	iface  framework.Interface
	number int       // among the Linux interface's
	once   sync.Once // start

	reader reader
	ready  chan struct{} // TxReady was called

	mu     sync.Mutex
	writer writer
}

func newQueue(p *Port, file *os.File, number int) *queue {
	return &queue{port: p, file: file, number: number, ready: make(chan struct{}, 1)}
}

func (q *queue) attach(i framework.Interface) {
	q.iface = i
	q.conn, _ = q.file.SyscallConn() // fails for a nil file only
	q.reader.open(q)
	q.writer.open(q)
}

// start starts the reader.
func (q *queue) start() { q.once.Do(func() { q.port.running.Go(q.read) }) }

// below is the transmit queue that this one sends to: how many there are can
// change.
func (q *queue) below() int { return q.number % q.iface.Queues() }

func (q *queue) wake() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// wait waits for TxReady; false says that the port was closed.
func (q *queue) wait() bool {
	select {
	case <-q.ready:
		return true
	case <-q.port.closed:
		return false
	}
}

// read carries packets from the kernel down until the port is closed or the
// Linux interface is gone.
func (q *queue) read() {
	defer q.reader.close()
	for q.reader.prepare() {
		if err := q.conn.Read(q.reader.takeAll); err != nil {
			return // the port was closed
		}
		if !q.reader.send() {
			return
		}
		if errno := q.reader.errno; errno != 0 {
			q.port.gone(errno)
			return
		}
	}
}

// deliver writes a batch to the kernel.
func (q *queue) deliver(from int, b *framework.Batch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := &q.writer
	w.batch, w.from, w.next = b, from, 0
	if err := q.conn.Write(w.writeAll); err != nil {
		q.port.counters.gone.Add(uint64(len(b.Packets)))
		for ; w.next < len(b.Packets); w.next++ {
			w.release(b.Fragments(w.next))
		}
	}
	w.giveBack()
	w.batch = nil
}

// Sizes of the reader's batch. It is sent when it is full or the kernel has no
// more: a few super-packets at a time, so that both sides work at once.
const (
	readPackets   = 32
	readFragments = 32
	// firstOffset leaves room for a VLAN tag in front of the frame and keeps IP
	// headers aligned.
	firstOffset = 16 + framework.RxOffset
)

// reader takes frames from the kernel into buffers. The vectors point into the
// buffers that are at hand, so that as many are at hand as the longest frame needs.
type reader struct {
	queue   *queue
	memory  *framework.Buffers
	batch   *framework.Batch
	header  vnetHeader
	vectors vectors
	buffers []framework.Buffer // those that vectors[1:] point to
	most    int                // buffers of the longest frame
	errno   unix.Errno
	takeAll func(fd uintptr) bool // take, made once
}

func (r *reader) open(q *queue) {
	r.queue, r.memory = q, q.iface.Buffers()
	longest := framework.MaxPacketLen + int(r.memory.Size) - 1
	r.most = min(longest/int(r.memory.Size), framework.MaxFragments)
	r.batch = framework.NewBatch(readPackets, readFragments+r.most)
	r.buffers = make([]framework.Buffer, 0, r.most)
	r.vectors.set(0, r.header[:])
	r.takeAll = r.take
}

// fragment is all of buffer b that frames are read into.
func (r *reader) fragment(b framework.Buffer) framework.Fragment {
	return framework.Fragment{Buffer: b, Offset: firstOffset, Len: min(r.memory.Size, r.memory.Stride-firstOffset)}
}

// refill takes as many buffers as there are and are missing, and tells whether
// the longest frame fits.
func (r *reader) refill() bool {
	have := len(r.buffers)
	if have == r.most {
		return true
	}
	got := r.queue.iface.Alloc(r.queue.below(), r.buffers[have:r.most])
	r.buffers = r.buffers[:have+got]
	for i := have; i < have+got; i++ {
		r.vectors.set(1+i, r.memory.Bytes(r.fragment(r.buffers[i])))
	}
	return len(r.buffers) == r.most
}

// prepare empties the batch and waits for buffers; false says that the port was
// closed.
func (r *reader) prepare() bool {
	r.batch.Reset()
	for !r.refill() {
		r.queue.port.counters.starved.Add(1)
		if !r.queue.wait() {
			return false
		}
	}
	return true
}

// take reads frames until the batch is full, buffers are short or the kernel has
// no more. It returns false, to be called again, if there was none at all.
func (r *reader) take(fd uintptr) bool {
	for len(r.batch.Packets) < readPackets && len(r.batch.Frags) < readFragments && r.refill() {
		n, errno := r.vectors.read(fd, 1+r.most)
		switch {
		case errno == unix.EAGAIN:
			return len(r.batch.Packets) > 0
		case errno != 0:
			r.errno = errno
			return true
		}
		r.add(n)
	}
	return true
}

// add makes a packet of the n bytes that were read.
func (r *reader) add(n int) {
	size := n - headerLen
	if size <= 0 {
		return
	}
	b := r.batch
	p := framework.Packet{First: uint32(len(b.Frags)), Len: uint32(size)}
	used := 0
	for left := uint32(size); left > 0; used++ {
		f := r.fragment(r.buffers[used])
		f.Len = min(f.Len, left)
		left -= f.Len
		b.Frags = append(b.Frags, f)
	}
	p.Frags = uint16(used)
	if !r.header.decode(&p, r.memory.Bytes(b.Frags[p.First])) {
		r.queue.port.counters.nonsense.Add(1)
		b.Frags = b.Frags[:p.First]
		return // the buffers are still at hand
	}
	b.Packets = append(b.Packets, p)
	r.consume(used)
}

// consume takes the first n buffers out of those at hand.
func (r *reader) consume(n int) {
	last := len(r.buffers) - n
	for i := range min(n, last) {
		from := max(n, last) + i
		r.buffers[i], r.vectors[1+i] = r.buffers[from], r.vectors[1+from]
	}
	r.buffers = r.buffers[:last]
}

// send sends the batch, however long that takes; false says that the port was
// closed.
func (r *reader) send() bool {
	q := r.queue
	q.port.counters.down(r.batch.Packets)
	for len(r.batch.Packets) > 0 {
		n := q.iface.Send(q.below(), r.batch)
		if n == len(r.batch.Packets) {
			return true
		}
		r.batch.Packets = r.batch.Packets[:copy(r.batch.Packets, r.batch.Packets[n:])]
		if !q.wait() {
			return false
		}
	}
	return true
}

// close gives back what was not sent.
func (r *reader) close() {
	for i := range r.batch.Packets {
		for _, f := range r.batch.Fragments(i) {
			r.buffers = append(r.buffers, f.Buffer)
		}
	}
	r.queue.iface.Release(r.queue.below(), r.buffers)
	r.buffers = r.buffers[:0]
}

// writer writes packets to the kernel from where they lie.
type writer struct {
	queue    *queue
	memory   *framework.Buffers
	batch    *framework.Batch
	from     int // the queue that it came from
	next     int // packet to write
	header   vnetHeader
	tag      [tagLen]byte
	vectors  vectors
	back     []framework.Buffer    // to be given back
	writeAll func(fd uintptr) bool // write, made once
}

// The 802.1Q tag: where in a frame it goes, and its type (IEEE 802.1Q-2018
// section 9.6).
const (
	tagAt    = 12
	tagLen   = 4
	etherTag = 0x8100
)

func (w *writer) open(q *queue) {
	w.queue, w.memory = q, q.iface.Buffers()
	w.back = make([]framework.Buffer, 0, backAtOnce+framework.MaxFragments)
	w.vectors.set(0, w.header[:])
	w.writeAll = w.write
}

// write writes the batch. It never waits: the kernel's answer to too much is to
// drop, and it counts that.
func (w *writer) write(fd uintptr) bool {
	c, mtu := &w.queue.port.counters, int(w.queue.port.mtu.Load())
	packets, bytes := uint64(0), uint64(0)
	for ; w.next < len(w.batch.Packets); w.next++ {
		frags := w.batch.Fragments(w.next)
		n := w.describe(&w.batch.Packets[w.next], frags, mtu)
		switch done, errno := w.vectors.write(fd, n); errno {
		case 0:
			packets++
			bytes += uint64(done - headerLen)
		case unix.EIO, unix.ENETDOWN:
			c.notUp.Add(1) // "ip link set NAME up" has not been done
		case unix.EBADFD, unix.EBADF:
			c.gone.Add(1)
			w.queue.port.gone(errno)
		default:
			c.refused.Add(1)
		}
		w.release(frags)
	}
	c.upPackets.Add(packets)
	c.upBytes.Add(bytes)
	return true
}

// describe fills in the header and the vectors of a packet, and returns how many
// they are.
func (w *writer) describe(p *framework.Packet, frags []framework.Fragment, mtu int) int {
	c := &w.queue.port.counters
	first := w.memory.Bytes(frags[0])
	offload.Vouch(p, first)
	switch offload.Turn(p, first, mtu) {
	case offload.Estimated:
		c.estimated.Add(1)
	case offload.Opaque:
		c.opaque.Add(1)
	case offload.Unverified:
		c.unverified.Add(1)
	}
	if p.Flags&framework.Segment != 0 {
		c.upCoalesced.Add(1)
	}
	n, shift := 1, uint16(0)
	if p.Flags&framework.VLANTag != 0 && len(first) > tagAt {
		binary.BigEndian.PutUint16(w.tag[:], etherTag)
		binary.BigEndian.PutUint16(w.tag[2:], p.VLAN)
		w.vectors.set(1, first[:tagAt])
		w.vectors.set(2, w.tag[:])
		w.vectors.set(3, first[tagAt:])
		n, shift = 4, tagLen
	} else {
		w.vectors.set(1, first)
		n = 2
	}
	for _, f := range frags[1:] {
		w.vectors.set(n, w.memory.Bytes(f))
		n++
	}
	w.header.encode(p, first, shift)
	return n
}

// backAtOnce is how many buffers are given back at once: not after the whole
// batch, which may hold a good part of a queue's buffers.
const backAtOnce = 64

// release gives a packet's buffers back, sooner or later.
func (w *writer) release(frags []framework.Fragment) {
	for i := range frags {
		w.back = append(w.back, frags[i].Buffer)
	}
	if len(w.back) >= backAtOnce {
		w.giveBack()
	}
}

func (w *writer) giveBack() {
	w.queue.iface.Release(w.from, w.back)
	w.back = w.back[:0]
}
