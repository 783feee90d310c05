package guest

import (
	"bufio"
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// This test runs drivers that nobody here wrote, the kernel's own, on nicd's
// models, under a QEMU that takes devices over vfio-user. It is heavy, needs
// what drivers/root.sh downloads, and so runs only where driversVar names a file
// for its result ("make test-guest-drivers").
const driversVar = "NICD_GUEST_DRIVERS"

// driversPatience bounds it.
const driversPatience = 25 * time.Minute

// served is a model: what "nicd device serve" is told, and the name that results
// have for it.
type served struct{ model, revision, name string }

// pairs are two models on a wire each.
var pairs = [][2]served{
	{{"vmxnet3", "4", "vmxnet3-r4"}, {"e1000e", "", "e1000e"}},
	{{"vmxnet3", "2", "vmxnet3-r2"}, {"e1000", "", "e1000"}},
	{{"vmxnet3", "3", "vmxnet3-r3"}, {"vmxnet3", "1", "vmxnet3-r1"}},
}

func TestGuestDrivers(t *testing.T) {
	to := os.Getenv(driversVar)
	if to == "" {
		t.Skipf("%s names no file for the result (make test-guest-drivers)", driversVar)
	}
	k := needQEMU(t)
	root := debian13(t)
	modules, err := k.modules("vmxnet3", "e1000", "e1000e")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	nicd := build(t, dir, "nicd/cmd/nicd")
	var list strings.Builder
	args := root.command("qemu-system-x86_64", "-L", root.path("usr/share/qemu"), "-L", root.path("usr/share/seabios"),
		"-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "768",
		"-object", "memory-backend-memfd,id=mem,size=768M,share=on", "-machine", "q35,memory-backend=mem",
		"-nodefaults", "-display", "none", "-no-reboot")
	for n, p := range pairs {
		devices := servePair(t, nicd, dir, n, p)
		fmt.Fprintf(&list, "%d", n)
		for side, d := range p {
			slot := 4 + 2*n + side
			fmt.Fprintf(&list, " 0000:00:%02x.0 %s %s", slot, macOf(n, side), d.name)
			args = append(args, "-device", fmt.Sprintf(`{"driver":"vfio-user-pci","addr":"%d","socket":{"path":"%s","type":"unix"}}`, slot, devices[side]))
		}
		list.WriteString("\n")
	}
	console, results := filepath.Join(dir, "console"), filepath.Join(dir, "results")
	args = append(args, "-kernel", k.image(), "-initrd", driversArchive(t, dir, root, modules, list.String()),
		"-append", "console=ttyS0 panic=-1 quiet", "-serial", "file:"+console, "-serial", "file:"+results)
	ctx, cancel := context.WithTimeout(t.Context(), driversPatience)
	defer cancel()
	qemu := exec.CommandContext(ctx, args[0], args[1:]...)
	qemu.WaitDelay = 5 * time.Second
	out, err := qemu.CombinedOutput()
	if err != nil {
		t.Errorf("QEMU: %v", err)
	}
	text, _ := os.ReadFile(results)
	judge(t, strings.ReplaceAll(string(text), "\r", ""), to, root.version(t), k)
	if t.Failed() {
		text, _ := os.ReadFile(console)
		t.Logf("console:\n%s\nQEMU:\n%s", text, out)
	}
}

func macOf(pair, side int) string { return fmt.Sprintf("02:00:00:00:%02x:%02x", pair+1, side+1) }

// servePair serves two models on one wire until the test ends. What the server
// complains about fails the test.
func servePair(t *testing.T, nicd, dir string, n int, p [2]served) (sockets [2]string) {
	t.Helper()
	args := []string{"device", "serve"}
	for side, d := range p {
		sockets[side] = filepath.Join(dir, fmt.Sprintf("d%d%d", n, side))
		args = append(args, d.model, "--socket", sockets[side], "--mac", macOf(n, side))
		if d.revision != "" {
			args = append(args, "--revision", d.revision)
		}
	}
	cmd := exec.Command(nicd, args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil || errs.Len() > 0 {
			t.Errorf("nicd %v: %v\n%s", args, err, errs.String())
		}
	})
	lines := bufio.NewScanner(out)
	for range p {
		if !lines.Scan() {
			t.Fatalf("nicd %v serves nothing", args)
		}
	}
	return sockets
}

// folder has programs of another Debian.
type folder string

// debian13 makes the folder unless the cache has it.
func debian13(t *testing.T) folder {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(cache, "nicd", "guest", "debian13")
	if out, err := exec.Command("sh", "drivers/root.sh", root).CombinedOutput(); err != nil {
		t.Fatalf("drivers/root.sh: %v\n%s", err, out)
	}
	return folder(root)
}

func (f folder) path(parts ...string) string {
	return filepath.Join(append([]string{string(f)}, parts...)...)
}

const (
	libraries = "usr/lib/x86_64-linux-gnu"
	loader    = "usr/lib64/ld-linux-x86-64.so.2"
)

// command runs one of the folder's programs with the folder's libraries, in
// place.
func (f folder) command(program string, args ...string) []string {
	return append([]string{f.path(loader), "--library-path", f.path(libraries), f.path("usr/bin", program)}, args...)
}

func (f folder) version(t *testing.T) string {
	t.Helper()
	c := f.command("qemu-system-x86_64", "--version")
	out, err := exec.Command(c[0], c[1:]...).Output()
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(out), " (")
	return first
}

// needed are the libraries of a program, and theirs.
func (f folder) needed(t *testing.T, program string, have map[string]bool) {
	t.Helper()
	e, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	names, err := e.ImportedLibraries()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if have[name] || strings.HasPrefix(name, "ld-linux") {
			continue
		}
		have[name] = true
		f.needed(t, f.path(libraries, name), have)
	}
}

func driversArchive(t *testing.T, dir string, root folder, modules []string, pairs string) string {
	t.Helper()
	file := filepath.Join(dir, "initramfs")
	to, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	a := newInitramfs(to)
	a.device("/dev/console", 5, 1)
	a.copy("/init", "drivers/guest.sh", 0o755)
	a.copy("/bin/busybox", root.path("usr/bin/busybox"), 0o755)
	needed := map[string]bool{}
	for _, program := range []string{"usr/sbin/ip", "usr/sbin/ethtool", "usr/bin/iperf3", libraries + "/libgcc_s.so.1"} {
		a.copy("/"+program, root.path(program), 0o755)
		root.needed(t, root.path(program), needed)
	}
	a.copy("/lib64/ld-linux-x86-64.so.2", root.path(loader), 0o755)
	for name := range needed {
		a.copy("/"+libraries+"/"+name, root.path(libraries, name), 0o644)
	}
	a.symlink("/lib/x86_64-linux-gnu", "/"+libraries)
	var order strings.Builder
	for _, m := range modules {
		a.copy("/modules/"+filepath.Base(m), m, 0o644)
		fmt.Fprintln(&order, "/modules/"+filepath.Base(m))
	}
	a.file("/modules/order", []byte(order.String()), 0o644)
	a.file("/pairs", []byte(pairs), 0o644)
	a.file("/etc/passwd", []byte("root:x:0:0:root:/:/bin/sh\n"), 0o644)
	if err := a.finish(); err != nil {
		t.Fatal(err)
	}
	return file
}

// judge reads the results, fails for what failed, and writes them down.
func judge(t *testing.T, results, to, qemu string, k *kernel) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(results), "\n")
	if lines[len(lines)-1] != "end" {
		t.Errorf("the guest did not get to its end")
	} else {
		lines = lines[:len(lines)-1]
	}
	var doc strings.Builder
	fmt.Fprintf(&doc, driversDoc, time.Now().UTC().Format(time.DateOnly), qemu, filepath.Base(k.dir))
	failed := 0
	for _, l := range lines {
		verdict, rest, _ := strings.Cut(l, " ")
		name, detail, _ := strings.Cut(rest, ": ")
		if t.Logf("%-4s %-50s %s", verdict, name, detail); verdict != "ok" {
			failed++
			t.Errorf("%s: %s", name, detail)
		}
		fmt.Fprintf(&doc, "| %s | %s | %s |\n", name, verdict, detail)
	}
	fmt.Fprintf(&doc, "\n%d checks, %d failed.\n", len(lines), failed)
	if err := os.WriteFile(to, []byte(doc.String()), 0o644); err != nil {
		t.Error(err)
	}
	if len(lines) < slices.Max([]int{20 * len(pairs)}) {
		t.Errorf("only %d checks were made", len(lines))
	}
}

const driversDoc = `# The kernel's drivers on nicd's models

Linux's own vmxnet3, e1000 and e1000e drivers on the models that ` + "`nicd device serve`" + `
serves over vfio-user, in a guest of a QEMU that has vfio-user-pci. Each pair of
models is on one wire, with its ends in two network namespaces of the guest. The
processor is emulated, so the rates say that data flows and nothing more.

Made by ` + "`make test-guest-drivers`" + `, which downloads what it needs to the user's cache
and installs nothing. Last run: %s, %s, Debian's %s.

| check | result | detail |
|---|---|---|
`
