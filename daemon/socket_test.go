package daemon

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"
)

// pathOf is a socket's path of so many bytes, in a directory of its own.
func pathOf(t *testing.T, length int) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "n")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, strings.Repeat("x", length-len(dir)-len("//s")), "s")
}

// The longest path that a client can use is served, although the socket is made in
// a directory below; a longer one is refused with the limit, and nothing is left.
func TestSocketPathLength(t *testing.T) {
	path := pathOf(t, maxSocketPath)
	l, err := adminSocket.listenPrivate(path)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	long := pathOf(t, maxSocketPath+1)
	if _, err := adminSocket.listenPrivate(long); err == nil || !strings.Contains(err.Error(), "at most 107 bytes, this has 108: choose another path with --socket") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(filepath.Dir(long)); err == nil {
		t.Error("a directory was left")
	}
}

// A directory that another user made first, below /tmp say, is not for our socket.
func TestSocketDirectoryOfAnother(t *testing.T) {
	dir, me := t.TempDir(), os.Geteuid()
	for _, c := range []struct {
		uid  int
		good bool
	}{{me, true}, {0, true}, {me + 1, me == 0}} {
		if err := checkOwner(dir, c.uid); err == nil != c.good {
			t.Errorf("user %d, directory of %d: %v", c.uid, me, err)
		}
	}
	if me != 0 {
		return // only root can give a directory away
	}
	if err := os.Chown(dir, 4711, -1); err != nil {
		t.Fatal(err)
	}
	if err := checkOwner(dir, 4712); err == nil || !strings.Contains(err.Error(), dir+" belongs to user 4711") {
		t.Errorf("%v", err)
	}
	for _, uid := range []int{0, 4711} {
		if err := checkOwner(dir, uid); err != nil {
			t.Error(err)
		}
	}
}

// Of several that want one path at once, which a dead process has left, one gets it:
// the others do not take the new socket for the old one.
func TestSocketRace(t *testing.T) {
	for range 200 {
		path := pathOf(t, 40)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		left.SetUnlinkOnClose(false)
		left.Close()
		const contenders = 4
		got := make(chan *privateListener, contenders)
		var racing sync.WaitGroup
		for range contenders {
			racing.Go(func() {
				if l, err := adminSocket.listenPrivate(path); err == nil {
					got <- l
				}
			})
		}
		racing.Wait()
		close(got)
		n := 0
		for l := range got {
			n++
			l.Close()
		}
		if n != 1 {
			t.Fatalf("%d have the socket", n)
		}
	}
}

// Who stops after its socket was removed, and another took the path, leaves the
// other's alone.
func TestSocketOfAnother(t *testing.T) {
	path := pathOf(t, 40)
	first, err := adminSocket.listenPrivate(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	second, err := adminSocket.listenPrivate(path)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

// TestStoppedBeforeServing: a daemon that ends as soon as it has begun has no trouble
// with its socket to report.
func TestStoppedBeforeServing(t *testing.T) {
	for range 100 {
		book := &logBook{}
		d := &Daemon{log: zerolog.New(book)}
		listener, err := adminSocket.listenPrivate(filepath.Join(t.TempDir(), "s"))
		if err != nil {
			t.Fatal(err)
		}
		d.listener = listener
		d.serve(listener)
		d.Stop()
		if text := book.String(); text != "" {
			t.Fatal(text)
		}
	}
}
