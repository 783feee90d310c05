package qemu

import (
	"bufio"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"nicd/bus"
)

// fakeQtest is a qtest whose other end is the test's.
func fakeQtest(t *testing.T, irq func(int, bool)) (q *qtest, qemu net.Conn, ended <-chan error) {
	t.Helper()
	ours, theirs, err := newPair()
	if err != nil {
		t.Fatal(err)
	}
	qemu, err = net.FileConn(theirs)
	theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	q = newQtest(ours, irq, patience, func() { t.Error("hangs") })
	end := make(chan error, 1)
	go func() { end <- q.serve() }()
	t.Cleanup(func() {
		ours.Close()
		qemu.Close()
		<-q.dead
	})
	return q, qemu, end
}

func TestQtestCommands(t *testing.T) {
	var lines []int
	q, qemu, _ := fakeQtest(t, func(line int, raised bool) {
		if !raised {
			line = -line
		}
		lines = append(lines, line)
	})
	type result struct{ a, b uint32 }
	done := make(chan result)
	go func() {
		q.write(0xE0000010, 4, 0xDEADBEEF)
		q.outPort(0xCF8, 4, 1)
		a := q.read(0x1_0000_0000, 2)
		q.write(8, 1, 7)
		done <- result{a, q.inPort(0xA00, 4)}
	}()
	const first = "writel 0xe0000010 0xdeadbeef\noutl 0xcf8 0x1\nreadw 0x100000000\n"
	const second = "writeb 0x8 0x7\ninl 0xa00\n"
	expect := func(want, answer string) {
		t.Helper()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(qemu, got); err != nil || string(got) != want {
			t.Fatalf("sent %q, %v", got, err)
		}
		if _, err := io.WriteString(qemu, answer); err != nil {
			t.Fatal(err)
		}
	}
	expect(first, "OK\nIRQ raise 21\nOK\nOK 0x0000000000001234\n")
	expect(second, "IRQ lower 21\nOK\nOK 0xffffffff\n")
	if r := <-done; r.a != 0x1234 || r.b != 0xFFFFFFFF {
		t.Errorf("read %#x and %#x", r.a, r.b)
	}
	if !slices.Equal(lines, []int{21, -21}) {
		t.Errorf("interrupts %v", lines)
	}
}

// TestQtestNonsense: what makes no sense ends the connection, and who waits for an
// answer gets all ones.
func TestQtestNonsense(t *testing.T) {
	for _, answer := range []string{"FAIL Unknown command", "ERR", "", "OK 0x", "OK 0xg", "OK 1", "OK 0x10000000000000000", "IRQ", "IRQ rise 1", "IRQ raise x", strings.Repeat("x", 1<<16)} {
		q, qemu, ended := fakeQtest(t, func(int, bool) { t.Error("interrupt") })
		read := make(chan uint32)
		go func() { read <- q.read(0, 4) }()
		if _, err := io.ReadFull(qemu, make([]byte, len("readl 0x0\n"))); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(qemu, answer+"\n"); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err == nil {
			t.Errorf("%.20q: no error", answer)
		}
		if v := <-read; v != bus.Gone {
			t.Errorf("%.20q: read %#x", answer, v)
		}
	}
}

// TestBIOS: the processor finds the endless halt where it starts.
func TestBIOS(t *testing.T) {
	f, err := newBIOS()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	image := make([]byte, biosSize+1)
	n, err := f.ReadAt(image, 0)
	if image = image[:n]; err != io.EOF {
		t.Fatal(err)
	}
	if len(image) != 64<<10 {
		t.Fatalf("%d bytes", len(image))
	}
	// cli; hlt; jmp -3, to the hlt
	if got := image[0xFFF0:0xFFF4]; !slices.Equal(got, []byte{0xFA, 0xF4, 0xEB, 0xFD}) {
		t.Errorf("code %x", got)
	}
}

// TestQtestStorm has more writes under way than the sockets hold: each side must
// take what the other sends while the other does not take what it sends itself.
func TestQtestStorm(t *testing.T) {
	q, qemu, _ := fakeQtest(t, nil)
	go func() {
		commands := bufio.NewScanner(qemu)
		for commands.Scan() {
			answer := "OK\n"
			if strings.HasPrefix(commands.Text(), "read") {
				answer = "OK 0x7\n"
			}
			if _, err := io.WriteString(qemu, answer); err != nil {
				return
			}
		}
	}()
	const writes = 20000
	read := make(chan uint32)
	go func() {
		for range writes {
			q.write(0x1000, 4, 1)
		}
		read <- q.read(0x1000, 4)
	}()
	select {
	case v := <-read:
		if v != 7 {
			t.Errorf("read %#x", v)
		}
	case <-time.After(patience):
		q.conn.Close() // for the writer's sake
		t.Errorf("stuck; then read %#x", <-read)
	}
}

// TestQtestHangs: a QEMU that takes no commands is noticed by whoever reads, though
// nothing bounds the time that sending takes.
func TestQtestHangs(t *testing.T) {
	ours, theirs, err := newPair()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	_ = ours.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
	for err == nil {
		_, err = ours.Write(make([]byte, 1<<10))
	}
	_ = ours.SetWriteDeadline(time.Time{})
	q := newQtest(ours, nil, 100*time.Millisecond, func() { ours.Close() })
	go q.serve()
	read := make(chan uint32)
	go func() { read <- q.read(0x1000, 4) }()
	select {
	case v := <-read:
		if v != bus.Gone {
			t.Errorf("read %#x", v)
		}
	case <-time.After(patience):
		ours.Close()
		<-read
		t.Error("not noticed")
	}
}
