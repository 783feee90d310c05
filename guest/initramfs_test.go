package guest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"testing"
)

// initramfs writes an archive that the kernel unpacks as its first root file
// system: cpio of the format "newc" (Documentation/driver-api/early-userspace/
// buffer-format.rst). Directories are made as they are needed.
type initramfs struct {
	w    io.Writer
	made map[string]bool
	ino  int
	at   int
	err  error
}

func newInitramfs(w io.Writer) *initramfs { return &initramfs{w: w, made: map[string]bool{"/": true}} }

const (
	modeDirectory = 0o040000
	modeRegular   = 0o100000
	modeSymlink   = 0o120000
	modeCharacter = 0o020000
)

// file adds a file at an absolute path.
func (a *initramfs) file(name string, content []byte, mode int) {
	a.directory(path.Dir(name))
	a.entry(name, modeRegular|mode, 0, 0, content)
}

// copy adds a file of this machine.
func (a *initramfs) copy(name, from string, mode int) {
	content, err := os.ReadFile(from)
	if err != nil && a.err == nil {
		a.err = err
	}
	a.file(name, content, mode)
}

func (a *initramfs) directory(name string) {
	if a.made[name] {
		return
	}
	a.directory(path.Dir(name))
	a.made[name] = true
	a.entry(name, modeDirectory|0o755, 0, 0, nil)
}

func (a *initramfs) symlink(name, target string) {
	a.directory(path.Dir(name))
	a.entry(name, modeSymlink|0o777, 0, 0, []byte(target))
}

// device adds a character device.
func (a *initramfs) device(name string, major, minor int) {
	a.directory(path.Dir(name))
	a.entry(name, modeCharacter|0o600, major, minor, nil)
}

func (a *initramfs) entry(name string, mode, major, minor int, content []byte) {
	a.ino++
	name = strings.TrimPrefix(name, "/")
	a.write([]byte(fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		a.ino, mode, 0, 0, 1, 0, len(content), 0, 0, major, minor, len(name)+1, 0)))
	a.write(append([]byte(name), 0))
	a.align()
	a.write(content)
	a.align()
}

func (a *initramfs) align() { a.write(make([]byte, (4-a.at%4)%4)) }

func (a *initramfs) write(b []byte) {
	if a.err == nil {
		_, a.err = a.w.Write(b)
	}
	a.at += len(b)
}

// finish writes the end of the archive.
func (a *initramfs) finish() error {
	a.entry("TRAILER!!!", 0, 0, 0, nil)
	return a.err
}

// A header is 110 bytes; names, with their zero, and contents are aligned to 4.
func TestInitramfs(t *testing.T) {
	var b bytes.Buffer
	a := newInitramfs(&b)
	a.file("/etc/a", []byte("12345"), 0o600)
	a.file("/etc/b", nil, 0o755)
	if err := a.finish(); err != nil {
		t.Fatal(err)
	}
	type entry struct {
		name, content string
		mode          int
	}
	var got []entry
	for rest := b.Bytes(); len(rest) > 0; {
		var ino, mode, uid, gid, links, mtime, size, major, minor, rmajor, rminor, nameSize, check int
		if _, err := fmt.Sscanf(string(rest[:110]), "070701%8x%8x%8x%8x%8x%8x%8x%8x%8x%8x%8x%8x%8x",
			&ino, &mode, &uid, &gid, &links, &mtime, &size, &major, &minor, &rmajor, &rminor, &nameSize, &check); err != nil {
			t.Fatal(err)
		}
		data := (110 + nameSize + 3) &^ 3
		got = append(got, entry{string(rest[110 : 110+nameSize-1]), string(rest[data : data+size]), mode})
		rest = rest[(data+size+3)&^3:]
	}
	want := []entry{{"etc", "", 0o040755}, {"etc/a", "12345", 0o100600}, {"etc/b", "", 0o100755}, {"TRAILER!!!", "", 0}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v", got)
	}
}
