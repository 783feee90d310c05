package main_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestReaderHangsUp: who reads what nicd shows may have seen enough, and that is a
// way to end it: all is cleared away.
func TestReaderHangsUp(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := command(ctx, dir, "run")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Error(err)
	}
	out.Close()
	_ = cmd.Wait()
	if s := cmd.ProcessState; !s.Exited() {
		t.Errorf("it ended by %v", s)
	}
	leftovers(t, dir)
}

// TestTerminalGoesAway: nobody sits there any more.
func TestTerminalGoesAway(t *testing.T) {
	dir := t.TempDir()
	near, far := openTerminal(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := command(ctx, dir, "run")
	cmd.Env = append(cmd.Env, "TERM=xterm")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = far, far, far
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	far.Close()
	var seen []byte
	for piece := make([]byte, 4096); !bytes.Contains(seen, []byte("Gbit/s")); {
		n, err := near.Read(piece)
		if err != nil {
			t.Fatalf("%v after %q", err, seen)
		}
		seen = append(seen, piece[:n]...)
	}
	near.Close()
	_ = cmd.Wait()
	if ctx.Err() != nil || !cmd.ProcessState.Exited() {
		t.Errorf("it ended by %v", cmd.ProcessState)
	}
	leftovers(t, dir)
}

// openTerminal makes a pseudo-terminal, pts(4): the end of who sits there, and the
// programs'.
func openTerminal(t *testing.T) (near, far *os.File) {
	t.Helper()
	near, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close() })
	fd := int(near.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	far, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return near, far
}

// TestNohup: SIGHUP has nicd reload, but not if it was started to ignore that: the
// end of a session would end what "nicd set" has set.
func TestNohup(t *testing.T) {
	for _, nohup := range []bool{false, true} {
		dir := t.TempDir()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := command(ctx, dir, "run", "--for", "2s")
		if nohup {
			cmd.Args = append([]string{"sh", "-c", `trap "" HUP; exec "$@"`, "sh", cmd.Path}, cmd.Args[1:]...)
			cmd.Path = "/bin/sh"
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(out)
		if _, err := r.ReadString('\n'); err != nil { // it runs
			t.Error(err)
		}
		if got := catches(t, cmd.Process.Pid, syscall.SIGHUP); got == nohup {
			t.Errorf("nohup %v: SIGHUP is caught: %v", nohup, got)
		}
		_, _ = io.Copy(io.Discard, r)
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// catches tells whether a process handles a signal, proc(5).
func catches(t *testing.T, pid int, s syscall.Signal) bool {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "SigCgt:\t")
	mask, err := strconv.ParseUint(rest[:16], 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return mask&(1<<(s-1)) != 0
}

// TestNoRoom: what could not be written is not done.
func TestNoRoom(t *testing.T) {
	dir := t.TempDir()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, args := range []string{"version", "version --json", "quirks", "devices", "config show", "conformance e1000 --list", "matrix --list", "run --for 1s"} {
		var errs bytes.Buffer
		cmd := command(t.Context(), dir, strings.Fields(args)...)
		cmd.Stdout, cmd.Stderr = full, &errs
		_ = cmd.Run()
		if lines := errorLines(errs.String()); cmd.ProcessState.ExitCode() != 1 || len(lines) != 1 || !strings.Contains(lines[0], "no space left") {
			t.Errorf("%s: status %d, %q", args, cmd.ProcessState.ExitCode(), errs.String())
		}
	}
	leftovers(t, dir)
}
