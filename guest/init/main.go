// Init is a guest's first and only process besides nicd: it carries out a
// guest.Plan, says on a serial line how that goes, and powers off.
//
// It talks to the kernel directly (mounts, modules, addresses) because there is
// nothing else in the initramfs that could.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"nicd/guest"
)

func main() {
	if err := carryOut(); err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
	}
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

func carryOut() error {
	if err := mountAll(); err != nil {
		return err
	}
	events, err := os.OpenFile("/dev/"+guest.EventsTTY, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(guest.PlanFile)
	if err != nil {
		return err
	}
	var plan guest.Plan
	if err := json.Unmarshal(text, &plan); err != nil {
		return err
	}
	for _, path := range plan.Modules {
		if err := loadModule(path); err != nil {
			return err
		}
	}
	report := json.NewEncoder(events)
	w := &world{}
	for n, s := range plan.Steps {
		began := time.Now()
		e := guest.Event{Step: n, Do: s.Do}
		if err := w.do(s, &e); err != nil {
			e.Error = err.Error()
		}
		e.Seconds = time.Since(began).Seconds()
		if err := report.Encode(e); err != nil {
			return err
		}
		if e.Error != "" {
			return fmt.Errorf("step %d, %s: %s", n, s.Do, e.Error)
		}
	}
	return report.Encode(guest.Event{Step: len(plan.Steps)})
}

func mountAll() error {
	for _, m := range []struct{ kind, at string }{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/tmp"}, {"tmpfs", "/run"},
	} {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	return nil
}

func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil {
		return fmt.Errorf("load %s: %w", path, err)
	}
	return nil
}
