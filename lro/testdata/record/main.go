// Command record makes the captures in this directory's parent: traffic of the running kernel's own TCP, between two
// network namespaces that it creates, over two TAP devices that it connects with each other. Being the wire, it can
// lose, reorder and mark frames as it likes. It needs root. The namespaces disappear with the process.
//
// Nothing in the captures was sent by or to anyone: addresses are from private ranges, payload is a counter.
//
//	go run ./lro/testdata/record lro/testdata
package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: record <directory>")
		os.Exit(2)
	}
	for _, s := range scenarios {
		w := newWire()
		w.impair = s.impair
		w.most = s.frames
		s.run(w)
		time.Sleep(50 * time.Millisecond) // what is under way
		w.write(filepath.Join(os.Args[1], s.name+".pcapng"))
		w.close()
		fmt.Printf("%-16s %d frames\n", s.name, len(w.frames))
	}
}

// scenario is one capture.
type scenario struct {
	name   string
	frames int
	impair func(w *wire, dir, n int, frame []byte) verdict
	run    func(w *wire)
}

type verdict int

const (
	pass verdict = iota
	drop
	hold // until the next frame of this direction has passed
)

var scenarios = []scenario{
	{"bulk", 70, nil, func(w *wire) { transfer(w, "tcp4", 90000, 1<<16, 0) }},
	{"records", 120, nil, func(w *wire) { transfer(w, "tcp4", 12000, 170, 2*time.Millisecond) }},
	{"loss", 110, lose, func(w *wire) { transfer(w, "tcp4", 110000, 1<<16, 0) }},
	{"reorder", 70, reorder, func(w *wire) { transfer(w, "tcp4", 70000, 1<<16, 0) }},
	{"ecn", 80, mark, func(w *wire) {
		w.each(func() { must(os.WriteFile("/proc/sys/net/ipv4/tcp_ecn", []byte("1"), 0o644)) })
		transfer(w, "tcp4", 90000, 1<<16, 0)
	}},
	{"ipv6", 70, nil, func(w *wire) { transfer(w, "tcp6", 90000, 1<<16, 0) }},
	{"window", 90, nil, slowReader},
	{"mixed", 160, nil, mixed},
	{"no-timestamps", 60, nil, func(w *wire) {
		w.each(func() { must(os.WriteFile("/proc/sys/net/ipv4/tcp_timestamps", []byte("0"), 0o644)) })
		transfer(w, "tcp4", 60000, 1<<16, 0)
	}},
}

// lose drops every thirteenth full-sized frame.
func lose(w *wire, dir, n int, f []byte) verdict {
	if dir == 0 && len(f) > 1400 && n%13 == 12 {
		return drop
	}
	return pass
}

func reorder(w *wire, dir, n int, f []byte) verdict {
	if dir == 0 && len(f) > 1400 && n%9 == 8 {
		return hold
	}
	return pass
}

// mark sets CE on every tenth full-sized frame that is capable of it.
func mark(w *wire, dir, n int, f []byte) verdict {
	if dir == 0 && len(f) > 1400 && n%10 == 9 && f[12] == 8 && f[15]&3 == 2 {
		f[15] |= 3
		old := binary.BigEndian.Uint16(f[24:])
		s := uint32(^old) + 1 // one more in the word of version and TOS
		binary.BigEndian.PutUint16(f[24:], ^uint16(s+s>>16))
	}
	return pass
}

// transfer sends bytes from the first namespace to the second in pieces, with a pause after each.
func transfer(w *wire, network string, bytes, piece int, pause time.Duration) {
	c, s := w.connect(network)
	done := make(chan struct{})
	go func() {
		io.Copy(io.Discard, s)
		s.Close()
		close(done)
	}()
	send(c, bytes, piece, pause)
	c.Close()
	<-done
}

func send(c net.Conn, bytes, piece int, pause time.Duration) {
	b := make([]byte, piece)
	for n := 0; n < bytes; n += piece {
		for i := range b {
			b[i] = byte((n + i) * 5)
		}
		if _, err := c.Write(b[:min(piece, bytes-n)]); err != nil {
			return
		}
		time.Sleep(pause)
	}
}

// slowReader reads so slowly that the window closes and opens again.
func slowReader(w *wire) {
	c, s := w.connect("tcp4")
	must(s.(*net.TCPConn).SetReadBuffer(6000))
	go send(c, 70000, 1<<16, 0)
	b := make([]byte, 4000)
	for total := 0; total < 70000; {
		time.Sleep(3 * time.Millisecond)
		n, err := s.Read(b)
		if err != nil {
			break
		}
		total += n
	}
	c.Close()
	s.Close()
}

// mixed runs three connections, one of them in the other direction, and datagrams; ARP comes by itself.
func mixed(w *wire) {
	w.each(func() { run("ip", "neigh", "flush", "all") })
	var all sync.WaitGroup
	for i := range 3 {
		c, s := w.connect([]string{"tcp4", "tcp6", "tcp4"}[i])
		if i == 2 {
			c, s = s, c
		}
		all.Go(func() { io.Copy(io.Discard, s); s.Close() })
		all.Go(func() { send(c, 40000, 5000, time.Millisecond); c.Close() })
	}
	var from, to net.PacketConn
	w.in(1, func() { to = must2(net.ListenPacket("udp4", "10.9.0.2:7000")) })
	w.in(0, func() { from = must2(net.ListenPacket("udp4", "10.9.0.1:7001")) })
	for i := range 25 {
		from.WriteTo(make([]byte, 40+i*20), to.LocalAddr())
		time.Sleep(500 * time.Microsecond)
	}
	all.Wait()
	from.Close()
	to.Close()
}

// wire is two namespaces with a TAP device each, and what goes between them.
type wire struct {
	taps   [2]*os.File
	work   [2]chan func()
	impair func(w *wire, dir, n int, frame []byte) verdict
	most   int

	mu     sync.Mutex
	frames []frame
}

type frame struct {
	when time.Time
	data []byte
}

func newWire() *wire {
	w := &wire{}
	for i := range w.taps {
		w.work[i] = make(chan func())
		go func() {
			runtime.LockOSThread() // never unlocked: the thread, and with it the namespace, ends with the goroutine
			must(unix.Unshare(unix.CLONE_NEWNET))
			for f := range w.work[i] {
				f()
			}
		}()
		w.in(i, func() { w.taps[i] = openTAP(i) })
	}
	for dir := range w.taps {
		go w.forward(dir)
	}
	return w
}

// in runs f in a namespace.
func (w *wire) in(i int, f func()) {
	done := make(chan struct{})
	w.work[i] <- func() { f(); close(done) }
	<-done
}

// each runs f in both.
func (w *wire) each(f func()) {
	w.in(0, f)
	w.in(1, f)
}

func openTAP(i int) *os.File {
	fd := must2(unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0))
	req := must2(unix.NewIfreq("wire"))
	req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	must(unix.IoctlIfreq(fd, unix.TUNSETIFF, req))
	run("ip", "link", "set", "lo", "up")
	run("ip", "link", "set", "wire", "address", fmt.Sprintf("02:00:00:00:00:0%d", i+1))
	run("ip", "addr", "add", fmt.Sprintf("10.9.0.%d/24", i+1), "dev", "wire")
	run("ip", "addr", "add", fmt.Sprintf("fd09::%d/64", i+1), "dev", "wire", "nodad")
	run("ip", "link", "set", "wire", "up")
	return os.NewFile(uintptr(fd), "tap")
}

// forward is the wire in one direction.
func (w *wire) forward(dir int) {
	b := make([]byte, 4096)
	var held []byte
	for n := 0; ; n++ {
		size, err := w.taps[dir].Read(b)
		if err != nil {
			return
		}
		f := append([]byte(nil), b[:size]...)
		v := pass
		if w.impair != nil {
			v = w.impair(w, dir, n, f)
		}
		if v == drop {
			continue
		}
		if v == hold && held == nil {
			held = f
			continue
		}
		w.deliver(dir, f)
		if held != nil {
			w.deliver(dir, held)
			held = nil
		}
	}
}

func (w *wire) deliver(dir int, f []byte) {
	w.mu.Lock()
	if len(w.frames) < w.most {
		w.frames = append(w.frames, frame{time.Now(), f})
	}
	w.mu.Unlock()
	w.taps[1-dir].Write(f)
}

// connect returns a connection from the first namespace to the second, and its other end.
func (w *wire) connect(network string) (client, server net.Conn) {
	address := "10.9.0.2:0"
	if network == "tcp6" {
		address = "[fd09::2]:0"
	}
	var l net.Listener
	w.in(1, func() { l = must2(net.Listen(network, address)) })
	accepted := make(chan net.Conn)
	go func() { accepted <- must2(l.Accept()) }()
	w.in(0, func() { client = must2(net.Dial(network, l.Addr().String())) })
	server = <-accepted
	l.Close()
	return client, server
}

func (w *wire) close() {
	for i := range w.taps {
		w.taps[i].Close()
		close(w.work[i])
	}
}

// write writes the frames as pcapng (draft-ietf-opsawg-pcapng): a section, an interface, and one enhanced packet block
// for each frame.
func (w *wire) write(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	le := binary.LittleEndian
	block := func(out []byte, kind uint32, body []byte) []byte {
		for len(body)%4 != 0 {
			body = append(body, 0)
		}
		out = le.AppendUint32(out, kind)
		out = le.AppendUint32(out, uint32(len(body)+12))
		out = append(out, body...)
		return le.AppendUint32(out, uint32(len(body)+12))
	}
	section := le.AppendUint32(nil, 0x1a2b3c4d)
	section = append(section, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
	out := block(nil, 0x0a0d0d0a, section)
	out = block(out, 1, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // Ethernet, no limit
	for i := range w.frames {
		f := &w.frames[i]
		t := uint64(f.when.Sub(w.frames[0].when).Microseconds())
		body := le.AppendUint32(nil, 0)
		body = le.AppendUint32(body, uint32(t>>32))
		body = le.AppendUint32(body, uint32(t))
		body = le.AppendUint32(body, uint32(len(f.data)))
		body = le.AppendUint32(body, uint32(len(f.data)))
		out = block(out, 6, append(body, f.data...))
	}
	must(os.WriteFile(name, out, 0o644))
}

func run(args ...string) {
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "record: %s: %v: %s\n", strings.Join(args, " "), err, out)
		os.Exit(1)
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

func must2[T any](v T, err error) T {
	must(err)
	return v
}
