package guest

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// kernel is Debian's, in the user's cache: the image and the modules that the
// tests may want.
type kernel struct{ dir string }

// kernelPackage depends on the package of the newest kernel.
const kernelPackage = "linux-image-amd64"

// wantedModules are the folders of modules that are unpacked.
var wantedModules = []string{
	"/drivers/vfio/", "/virt/lib/", "/drivers/net/tun.ko", "/drivers/net/vmxnet3/", "/drivers/net/ethernet/intel/e1000/",
	"/drivers/net/ethernet/intel/e1000e/", "/drivers/ptp/", "/drivers/pps/",
}

// errCannot: the machine lacks something that the test needs.
var errCannot = errors.New("not possible here")

// findKernel downloads and unpacks the kernel unless the cache has it. It is not
// installed.
func findKernel() (*kernel, error) {
	out, err := exec.Command("apt-cache", "depends", kernelPackage).Output()
	if err != nil {
		return nil, fmt.Errorf("%w: apt-cache: %v", errCannot, err)
	}
	_, name, ok := strings.Cut(string(out), "Depends: ")
	if !ok {
		return nil, fmt.Errorf("%w: no package %s", errCannot, kernelPackage)
	}
	name, _, _ = strings.Cut(name, "\n")
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	k := &kernel{filepath.Join(cache, "nicd", "guest", name)}
	if _, err := os.Stat(k.image()); err == nil {
		return k, nil
	}
	return k, k.download(name)
}

func (k *kernel) image() string { return filepath.Join(k.dir, "vmlinuz") }

// download fills a new folder, which then takes its place.
func (k *kernel) download(name string) error {
	if err := os.MkdirAll(filepath.Dir(k.dir), 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(k.dir), "new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	get := exec.Command("apt-get", "-q", "download", name)
	get.Dir = dir
	if out, err := get.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: apt-get download %s: %v: %s", errCannot, name, err, out)
	}
	packages, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(packages) != 1 {
		return fmt.Errorf("apt-get download %s made %v, %v", name, packages, err)
	}
	fresh := kernel{filepath.Join(dir, "kernel")}
	if err := fresh.unpack(packages[0]); err != nil {
		return err
	}
	if err := os.Rename(fresh.dir, k.dir); err != nil && !os.IsExist(err) {
		return err
	}
	return nil
}

func (k *kernel) unpack(file string) error {
	unpack := exec.Command("dpkg-deb", "--fsys-tarfile", file)
	out, err := unpack.StdoutPipe()
	if err != nil {
		return err
	}
	if err := unpack.Start(); err != nil {
		return fmt.Errorf("%w: %v", errCannot, err)
	}
	if err := k.take(tar.NewReader(out)); err != nil {
		_ = unpack.Process.Kill()
		_ = unpack.Wait()
		return err
	}
	return unpack.Wait()
}

func (k *kernel) take(files *tar.Reader) error {
	for {
		h, err := files.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		to := k.place(h.Name)
		if h.Typeflag != tar.TypeReg || to == "" {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		content, err := io.ReadAll(files)
		if err != nil {
			return err
		}
		if err := os.WriteFile(to, content, 0o644); err != nil {
			return err
		}
	}
}

// place is where a file of the package is kept, "" for those that nobody wants.
func (k *kernel) place(name string) string {
	if strings.Contains(name, "/boot/vmlinuz-") {
		return k.image()
	}
	for _, w := range wantedModules {
		if strings.Contains(name, w) {
			return filepath.Join(k.dir, "modules", filepath.Base(name))
		}
	}
	return ""
}

// modules are the files of modules and of all that they depend on, in the order
// in which to load them.
func (k *kernel) modules(names ...string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(k.dir, "modules", "*.ko"))
	if err != nil {
		return nil, err
	}
	byName := map[string]string{}
	for _, f := range files {
		byName[moduleName(f)] = f
	}
	var order []string
	seen := map[string]bool{}
	var add func(name string) error
	add = func(name string) error {
		if seen[name] {
			return nil
		}
		seen[name] = true
		file, ok := byName[name]
		if !ok {
			return fmt.Errorf("the kernel's package has no module %s where it was looked for", name)
		}
		needs, err := dependencies(file)
		if err != nil {
			return err
		}
		for _, n := range needs {
			if err := add(n); err != nil {
				return err
			}
		}
		order = append(order, file)
		return nil
	}
	for _, n := range names {
		if err := add(n); err != nil {
			return nil, err
		}
	}
	return order, nil
}

// moduleName is how modules call each other: the file's name with '_' for '-'.
func moduleName(file string) string {
	return strings.ReplaceAll(strings.TrimSuffix(filepath.Base(file), ".ko"), "-", "_")
}

// dependencies are the modules that a module says it depends on.
func dependencies(file string) ([]string, error) {
	f, err := elf.Open(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	defer f.Close()
	section := f.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("%s: no .modinfo", file)
	}
	info, err := section.Data()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for _, field := range bytes.Split(info, []byte{0}) {
		if list, ok := bytes.CutPrefix(field, []byte("depends=")); ok && len(list) > 0 {
			return strings.Split(strings.ReplaceAll(string(list), "-", "_"), ","), nil
		}
	}
	return nil, nil
}

// need skips the test for what the machine lacks, except in CI, where everything
// has to be there.
func need(t *testing.T, err error) {
	t.Helper()
	switch {
	case err == nil:
	case errors.Is(err, errCannot) && os.Getenv("CI") == "":
		t.Skip(err)
	default:
		t.Fatal(err)
	}
}
