package vfiouser

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// envAway makes the test binary the client that is away.
const envAway = "NICD_TEST_AWAY"

const awayTimeout = 4 * time.Second

// A client that was stopped while it waited, for longer than a server may take, takes
// the answer that it finds when it goes on: a machine that was away is no server that
// hangs.
func TestClientWasAway(t *testing.T) {
	if os.Getenv(envAway) != "" {
		beAway(t)
		return
	}
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestClientWasAway$", "-test.v")
	cmd.Env = append(os.Environ(), envAway+"=1")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	says := bufio.NewScanner(stdout)
	for says.Scan() && says.Text() != "asked" {
	}
	pid := cmd.Process.Pid
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, pid, &info, unix.WSTOPPED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	time.Sleep(awayTimeout + awayTimeout/10) // what it is about
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(stdin, "answer")
	var all strings.Builder
	for says.Scan() {
		fmt.Fprintln(&all, says.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, all.String())
	}
}

// beAway asks a server, which answers when it is told to.
func beAway(t *testing.T) {
	r, c := attached(t, DialOptions{Timeout: awayTimeout})
	read := background(func() uint32 { return bar(t, c, 0).Read32(0x40) })
	r.receive()
	fmt.Println("\nasked")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	r.send(wire(t, "0f00 0900 24000000 01000000 00000000  4000000000000000 00000000 04000000 78563412"))
	if got := <-read; got != 0x12345678 {
		t.Errorf("Read32 = %#x, %v", got, c.Err())
	}
}
