package plugin

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// proc is a plugin's process: its start, its output, its end.
type proc struct {
	name   string
	stdout *output
	stderr *output
	first  firstLine // of stdout: go-plugin's handshake

	mu     sync.Mutex
	cmd    *exec.Cmd
	killed bool
	reaped bool

	exited chan struct{}    // closed when the process is gone
	state  *os.ProcessState // then
}

// lastWords is how long output is waited for after the process's end, in case
// a child of it holds the pipes.
const lastWords = 50 * time.Millisecond

func newProc(name string) *proc {
	return &proc{name: name, exited: make(chan struct{}), first: firstLine{done: make(chan struct{})}}
}

// start runs exe with env; files become descriptors from 3 on, and the last of
// them is exe, which is what is executed, not whatever its path is now.
func (p *proc) start(exe *os.File, env []string, files ...*os.File) error {
	if err := keepDescriptors(); err != nil {
		return err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return err
	}
	errR, errW, err := os.Pipe()
	if err != nil {
		outR.Close()
		outW.Close()
		return err
	}
	files = append(files, exe)
	cmd := &exec.Cmd{
		Path:        fmt.Sprintf("/proc/self/fd/%d", 2+len(files)),
		Args:        []string{p.name},
		Env:         env,
		Stdout:      outW,
		Stderr:      errW,
		ExtraFiles:  files,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	err = p.run(cmd)
	outW.Close()
	errW.Close()
	if err != nil {
		outR.Close()
		errR.Close()
		return err
	}
	var readers sync.WaitGroup
	readers.Go(func() { p.readStdout(outR) })
	readers.Go(func() { p.stderr.read(errR) })
	go p.wait(&readers, outR, errR)
	return nil
}

// keepDescriptors keeps from the programs that this process starts what it has
// inherited itself: TAP devices that somebody opened for it, or what a shell left open.
// What Go opens they do not get anyway.
func keepDescriptors() error {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, entry := range fds {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

var errKilledEarly = errors.New("killed before it ran")

func (p *proc) run(cmd *exec.Cmd) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.killed {
		return errKilledEarly
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.cmd = cmd
	return nil
}

func (p *proc) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// readStdout hands over the first line and logs the rest: a driver has no
// business on stdout, but must not block there.
func (p *proc) readStdout(r io.Reader) {
	lines := bufio.NewReaderSize(r, maxLine)
	line, _ := lines.ReadSlice('\n')
	p.first.set(line)
	p.stdout.read(lines)
}

// wait notices the process's end, ends its children and reaps it, in this
// order: until it is reaped nobody else can have its number.
func (p *proc) wait(readers *sync.WaitGroup, pipes ...*os.File) {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, p.cmd.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	p.mu.Lock()
	_ = unix.Kill(-p.cmd.Process.Pid, unix.SIGKILL)
	_ = p.cmd.Wait()
	p.reaped = true
	p.state = p.cmd.ProcessState
	p.mu.Unlock()
	for _, f := range pipes {
		_ = f.SetReadDeadline(time.Now().Add(lastWords))
	}
	readers.Wait()
	for _, f := range pipes {
		f.Close()
	}
	close(p.exited)
}

// kill ends the process and its children. It does not wait, and may be called
// before start.
func (p *proc) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.killed = true
	if p.cmd == nil || p.reaped {
		return
	}
	_ = unix.Kill(-p.cmd.Process.Pid, unix.SIGKILL)
	_ = p.cmd.Process.Kill()
}

// firstLine is an io.Reader of one line that may be yet to come.
type firstLine struct {
	done chan struct{}
	text []byte
	rest *bytes.Reader
}

func (l *firstLine) set(line []byte) {
	l.text = bytes.Clone(line)
	l.rest = bytes.NewReader(l.text)
	close(l.done)
}

func (l *firstLine) Read(b []byte) (int, error) {
	<-l.done
	return l.rest.Read(b)
}

func (l *firstLine) Close() error { return nil }

// get is the line, if there is one by now.
func (l *firstLine) get() (string, bool) {
	select {
	case <-l.done:
		return string(bytes.TrimSpace(l.text)), true
	default:
		return "", false
	}
}
