package guest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// build makes a static binary for the guest.
func build(t *testing.T, dir, pkg string) string {
	t.Helper()
	return compile(t, filepath.Join(dir, filepath.Base(pkg)), "build", pkg)
}

// buildTest makes a package's test binary for the guest.
func buildTest(t *testing.T, dir, pkg string) string {
	t.Helper()
	return compile(t, filepath.Join(dir, filepath.Base(pkg)+".test"), "test", "-c", pkg)
}

func compile(t *testing.T, to, command string, args ...string) string {
	t.Helper()
	noteSources(t)
	cmd := exec.Command("go", append([]string{command, "-trimpath", "-ldflags", "-s -w", "-o", to}, args...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s %v: %v\n%s", command, args, err, out)
	}
	return to
}

// noteSources looks at each of the module's source files, so that go test does
// not take an earlier result for this one's: it knows what a test has looked at,
// and not what the compiler has that a test runs.
func noteSources(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ".go") || strings.HasSuffix(path, ".hcl") || d.Name() == "go.mod" {
			_, err = os.Stat(path)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}

// archive makes the initramfs: init, nicd, modules, the plan and other files.
func archive(t *testing.T, dir string, modules []string, plan Plan, files map[string]string) string {
	t.Helper()
	file := filepath.Join(dir, "initramfs")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	buffered := bufio.NewWriterSize(f, 1<<20)
	a := newInitramfs(buffered)
	a.device("/dev/console", 5, 1)
	a.copy("/init", build(t, dir, "nicd/guest/init"), 0o755)
	a.copy(NICD, build(t, dir, "nicd/cmd/nicd"), 0o755)
	if slices.ContainsFunc(plan.Steps, func(s Step) bool { return s.Do == Hardware }) {
		a.copy(VFIOTest, buildTest(t, dir, "nicd/bus/vfio"), 0o755)
	}
	for _, m := range modules {
		at := "/modules/" + filepath.Base(m)
		a.copy(at, m, 0o644)
		plan.Modules = append(plan.Modules, at)
	}
	for name, content := range files {
		a.file(name, []byte(content), 0o644)
	}
	text, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	a.file(PlanFile, text, 0o644)
	if err := a.finish(); err != nil {
		t.Fatal(err)
	}
	if err := buffered.Flush(); err != nil {
		t.Fatal(err)
	}
	return file
}

// outcome is what a guest left.
type outcome struct {
	events  []Event
	console string // the kernel's and nicd's messages
	qemu    string // QEMU's own
	err     error  // of QEMU
}

// boot runs a guest until it powers off or ctx ends.
func boot(ctx context.Context, t *testing.T, dir string, k *kernel, initramfs, cmdline string, args ...string) outcome {
	t.Helper()
	console, events := filepath.Join(dir, "console"), filepath.Join(dir, "events")
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", append([]string{
		"-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "1280",
		"-kernel", k.image(), "-initrd", initramfs, "-append", "console=ttyS0 panic=-1 " + cmdline,
		"-nodefaults", "-display", "none", "-no-reboot",
		"-serial", "file:" + console, "-serial", "file:" + events,
	}, args...)...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.WaitDelay = 5 * time.Second
	o := outcome{err: cmd.Run(), qemu: said.String()}
	text, err := os.ReadFile(console)
	if err != nil {
		t.Error(err)
	}
	o.console = strings.ReplaceAll(string(text), "\r", "")
	if o.events, err = readEvents(events); err != nil {
		t.Error(err)
	}
	return o
}

func readEvents(file string) (all []Event, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for _, line := range strings.Split(string(text), "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		var e Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return all, fmt.Errorf("event %q: %w", line, err)
		}
		all = append(all, e)
	}
	return all, nil
}

// needQEMU finds what every guest needs.
func needQEMU(t *testing.T) *kernel {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("the guest is an amd64 one")
	}
	if testing.Short() {
		t.Skip("it takes a minute")
	}
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		need(t, fmt.Errorf("%w: %v", errCannot, err))
	}
	k, err := findKernel()
	need(t, err)
	return k
}
