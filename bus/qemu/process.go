package qemu

// This file uses x/sys/unix for sockets that need no name.

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is a QEMU. It does not outlive this process.
type process struct {
	cmd   *exec.Cmd
	words lastWords
	ended chan struct{}
	err   error // why, once ended
}

// outputPatience is how long output is waited for after the end.
const outputPatience = 100 * time.Millisecond

// startProcess runs program; files become its descriptors from 3 on.
func startProcess(program string, args []string, files []*os.File) (*process, error) {
	p := &process{cmd: exec.Command(program, args...), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.words, &p.words
	p.cmd.ExtraFiles = files
	p.cmd.WaitDelay = outputPatience
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// run starts the process and waits for its end. The kernel sends the signal of a
// parent's death when the thread ends that was the parent, so this thread is kept;
// waiting takes a thread anyway.
func (p *process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	p.err = p.cmd.Wait()
	if p.err == nil {
		p.err = errors.New("exit status 0")
	}
	if words := p.words.String(); words != "" {
		p.err = fmt.Errorf("%w: %s", p.err, words)
	}
	close(p.ended)
}

// kill ends the process; it does not wait.
func (p *process) kill() { _ = p.cmd.Process.Kill() }

// lastWords keeps the end of what a process says.
type lastWords struct {
	mu   sync.Mutex
	text []byte
}

const longestWords = 500

func (w *lastWords) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, b...)
	w.text = w.text[max(0, len(w.text)-longestWords):]
	return len(b), nil
}

func (w *lastWords) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(bytes.ReplaceAll(bytes.TrimSpace(w.text), []byte("\n"), []byte("; ")))
}

// inheritance is the files that a process gets, from descriptor 3 on.
type inheritance struct {
	files []*os.File
	ours  []*os.File // of them: to be closed here once the process has them
}

// lend adds a file that stays its owner's, give one that does not.
func (f *inheritance) lend(file *os.File) (fd int) {
	f.files = append(f.files, file)
	return 2 + len(f.files)
}

func (f *inheritance) give(file *os.File) (fd int) {
	f.ours = append(f.ours, file)
	return f.lend(file)
}

func (f *inheritance) close() {
	for _, file := range f.ours {
		file.Close()
	}
}

// newPair makes a connection; theirs is for another process.
func newPair() (ours *net.UnixConn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "socket")
	file := os.NewFile(uintptr(fds[0]), "socket")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return conn.(*net.UnixConn), theirs, nil
}
