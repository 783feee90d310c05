package qemu

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"nicd/bus"
)

// qtest is a connection to QEMU's test protocol: a line for each access, a line
// in answer, in order. Writes are sent and not waited for; a read waits for its
// answer, and so for all writes before it. Any goroutine may use it; nothing
// allocates.
type qtest struct {
	conn *net.UnixConn
	// irq is told about inputs of the intercepted interrupt controller. It must
	// not call the qtest.
	irq func(line int, raised bool)

	reading  sync.Mutex // one read at a time
	answer   chan uint64
	patience *waitLimit // with a read; over ends QEMU

	mu   sync.Mutex // of what follows, and of sending
	out  []byte
	sent uint64 // commands

	// wanted is the command whose answer reading waits for. serve does not take mu
	// to look at it: QEMU takes no more commands while nobody takes its answers.
	wanted atomic.Uint64

	dead chan struct{} // closed when there will be no more answers
}

// width is the letter of an access of so many bytes.
func width(size int) byte { return [...]byte{1: 'b', 2: 'w', 4: 'l'}[size] }

// newQtest makes a qtest, which calls hangs if no answer comes for timeout.
func newQtest(conn *net.UnixConn, irq func(int, bool), timeout time.Duration, hangs func()) *qtest {
	return &qtest{conn: conn, irq: irq, patience: newWaitLimit(timeout, hangs), answer: make(chan uint64, 1), dead: make(chan struct{})}
}

// read reads size bytes at a physical address, all ones if QEMU is gone.
func (q *qtest) read(addr uint64, size int) uint32 { return q.get("read", addr, size) }

// write writes them.
func (q *qtest) write(addr uint64, size int, v uint32) { q.put("write", addr, size, v) }

// inPort reads a port in I/O space, outPort writes one.
func (q *qtest) inPort(port uint64, size int) uint32     { return q.get("in", port, size) }
func (q *qtest) outPort(port uint64, size int, v uint32) { q.put("out", port, size, v) }

func (q *qtest) put(command string, addr uint64, size int, v uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.begin(command, addr, size)
	q.out = append(q.out, " 0x"...)
	q.out = strconv.AppendUint(q.out, uint64(v), 16)
	q.send()
}

func (q *qtest) get(command string, addr uint64, size int) uint32 {
	q.reading.Lock()
	defer q.reading.Unlock()
	q.patience.begin() // before mu, for which a write can wait that QEMU does not take
	defer q.patience.end()
	q.mu.Lock()
	q.begin(command, addr, size)
	q.wanted.Store(q.sent + 1)
	q.send()
	q.mu.Unlock()
	select {
	case v := <-q.answer:
		return uint32(v)
	case <-q.dead:
		return bus.Gone
	}
}

// interceptIOAPIC makes QEMU tell about the interrupt controller's inputs.
func (q *qtest) interceptIOAPIC() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.out = append(q.out[:0], "irq_intercept_in ioapic"...)
	q.send()
}

// begin, with mu held, makes out a command; send sends it. A failure to send is
// seen by serve, as the end of answers.
func (q *qtest) begin(command string, addr uint64, size int) {
	q.out = append(append(q.out[:0], command...), width(size))
	q.out = append(q.out, " 0x"...)
	q.out = strconv.AppendUint(q.out, addr, 16)
}

func (q *qtest) send() {
	q.out = append(q.out, '\n')
	q.sent++
	_, _ = q.conn.Write(q.out)
}

// serve takes answers until the connection ends, and says why it did.
func (q *qtest) serve() error {
	defer close(q.dead)
	lines := bufio.NewReader(q.conn)
	for answered := uint64(0); ; {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return err
		}
		line = bytes.TrimSpace(line)
		if rest, ok := bytes.CutPrefix(line, []byte("IRQ ")); ok {
			if err := q.interrupt(rest); err != nil {
				return err
			}
			continue
		}
		v, ok := answerOf(line)
		if !ok {
			return fmt.Errorf("qtest answers %q", line)
		}
		answered++
		q.deliver(answered, v)
	}
}

func (q *qtest) deliver(answered, v uint64) {
	if q.wanted.Load() == answered {
		q.answer <- v
	}
}

// answerOf is the number in an answer, 0 if there is none.
func answerOf(line []byte) (v uint64, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte("OK"))
	if !ok || len(rest) == 0 {
		return 0, ok
	}
	rest, ok = bytes.CutPrefix(rest, []byte(" 0x"))
	for _, c := range rest {
		digit := bytes.IndexByte([]byte("0123456789abcdef"), c)
		if digit < 0 || v>>60 != 0 {
			return 0, false
		}
		v = v<<4 | uint64(digit)
	}
	return v, ok && len(rest) > 0
}

// interrupt takes "raise N" or "lower N".
func (q *qtest) interrupt(text []byte) error {
	verb, number, _ := bytes.Cut(text, []byte(" "))
	line, err := strconv.Atoi(string(number))
	raised := string(verb) == "raise"
	if err != nil || !raised && string(verb) != "lower" {
		return fmt.Errorf("qtest says IRQ %q", text)
	}
	q.irq(line, raised)
	return nil
}
