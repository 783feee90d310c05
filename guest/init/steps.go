package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"nicd/guest"
)

// world is what steps leave for later ones.
type world struct {
	nicd   *exec.Cmd
	stdout *bytes.Buffer
}

// patience bounds each wait in a step.
const patience = 60 * time.Second

func (w *world) do(s guest.Step, e *guest.Event) (err error) {
	switch s.Do {
	case guest.Run:
		return run(s, e)
	case guest.Hardware:
		return testHardware(s, e)
	case guest.Start:
		w.nicd, w.stdout = command(s.Args), &bytes.Buffer{}
		w.nicd.Stdout = w.stdout
		return w.nicd.Start()
	case guest.Stop:
		if err := w.nicd.Process.Signal(syscall.SIGINT); err != nil {
			return err
		}
		err := w.nicd.Wait()
		e.Output = w.stdout.String()
		return err
	case guest.Address:
		return address(s)
	case guest.NoTSO:
		return disableTSO(s)
	case guest.Write:
		return os.WriteFile(s.Path, []byte(s.Content), 0o600)
	case guest.Remove:
		return os.Remove(s.Path)
	case guest.Fetch:
		return fetch(s, e)
	case guest.Errors:
		e.Counters, err = errorCounters(s)
		return err
	case guest.Datagrams:
		return sendDatagrams(s)
	case guest.Retransmits:
		e.Counters, err = retransmits()
		return err
	case guest.Fault:
		return provokeFault(s.Device)
	}
	return fmt.Errorf("unknown action %q", s.Do)
}

// command is nicd with an environment. It complains on the console.
func command(args []string) *exec.Cmd {
	c := exec.Command(guest.NICD, args...)
	c.Stderr = os.Stderr
	c.Env = []string{"PATH=/", "TMPDIR=/tmp", "NICD_SOCKET=/run/nicd.sock"}
	return c
}

func run(s guest.Step, e *guest.Event) error {
	c := command(s.Args)
	var said bytes.Buffer
	if s.Fails != "" {
		c.Stderr = &said
	}
	output, err := c.Output()
	e.Output = string(output)
	if s.Fails == "" {
		return err
	}
	if e.Output += said.String(); err == nil || !strings.Contains(said.String(), s.Fails) {
		return fmt.Errorf("nicd %v: %v, not %q: %s", s.Args, err, s.Fails, said.String())
	}
	return nil
}

// testHardware reports what failed, as the test says it.
func testHardware(s guest.Step, e *guest.Event) error {
	c := exec.Command(guest.VFIOTest, "-test.run=TestHardware|TestNewContiguous", "-test.v")
	c.Env = []string{"TMPDIR=/tmp", "NICD_VFIO_TEST_NICS=" + strings.Join(s.Devices, ",")}
	output, err := c.CombinedOutput()
	e.Output = string(output)
	return err
}

// interfaceOf is the kernel interface that a step means, for which it waits: a
// driver or nicd may still be making it.
func interfaceOf(s guest.Step) (string, error) {
	pattern := "/sys/class/net/" + s.Interface
	if s.Device != "" {
		pattern = "/sys/bus/pci/devices/" + s.Device + "/net/*"
	}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if found, err := filepath.Glob(pattern); err != nil || len(found) == 1 {
			return filepath.Base(found[0]), err
		}
	}
	return "", fmt.Errorf("no interface %s%s", s.Interface, s.Device)
}

func address(s guest.Step) error {
	name, err := interfaceOf(s)
	if err != nil {
		return err
	}
	prefix, err := netip.ParsePrefix(s.Prefix)
	if err != nil {
		return err
	}
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	request, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	mask := [4]byte{}
	for bit := range prefix.Bits() {
		mask[bit/8] |= 0x80 >> (bit % 8)
	}
	ip := prefix.Addr().As4()
	for _, set := range []struct {
		request uint
		bytes   []byte
	}{{unix.SIOCSIFADDR, ip[:]}, {unix.SIOCSIFNETMASK, mask[:]}} {
		if err := request.SetInet4Addr(set.bytes); err != nil {
			return err
		}
		if err := unix.IoctlIfreq(socket, set.request, request); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	request.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request)
}

// fetch tries until the network is up, then once and for all.
func fetch(s guest.Step, e *guest.Event) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		response, err := get(ctx, s.URL)
		if err == nil {
			if e.Received, err = sum(response.Body); err != nil {
				return err
			}
			response.Body.Close()
			break
		}
		if ctx.Err() != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	data := make([]byte, s.Bytes)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data)
	e.Sent, _ = sum(bytes.NewReader(data))
	put, err := http.NewRequestWithContext(ctx, http.MethodPut, s.URL, bytes.NewReader(data))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(put)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

func get(ctx context.Context, url string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(request)
}

func sum(r io.Reader) (string, error) {
	h := sha256.New()
	_, err := io.Copy(h, r)
	return hex.EncodeToString(h.Sum(nil)), err
}

func errorCounters(s guest.Step) (map[string]uint64, error) {
	name, err := interfaceOf(s)
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob("/sys/class/net/" + name + "/statistics/*_errors")
	if err != nil {
		return nil, err
	}
	counters := map[string]uint64{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			return nil, err
		}
		if n != 0 {
			counters[filepath.Base(f)] = n
		}
	}
	return counters, nil
}
