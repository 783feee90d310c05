package daemon

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// SocketEnv names the environment variable that says where the admin socket is.
const SocketEnv = "NICD_SOCKET"

// SocketPath is where the admin socket is: as a flag says, else as the
// environment says, else as the config says, else in the user's runtime
// directory.
func SocketPath(flag, config string) string {
	for _, path := range []string{flag, os.Getenv(SocketEnv), config} {
		if path != "" {
			return path
		}
	}
	if os.Geteuid() == 0 {
		return "/run/nicd/nicd.sock"
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "nicd", "nicd.sock")
	}
	return filepath.Join(os.TempDir(), "nicd-"+strconv.Itoa(os.Geteuid()), "nicd.sock")
}

// socketKind is what a socket is for, in messages.
type socketKind struct {
	name   string // "admin socket"
	taken  string // what a living one of that path means
	advice string
}

var adminSocket = socketKind{"admin socket", "a nicd runs there already", "choose another path with --socket"}

// listenPrivate makes a unix socket of mode 0600, and so from its first moment
// on. A socket that a dead process left is replaced; that of a living one is not.
func (k socketKind) listenPrivate(path string) (*privateListener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("%s %s: a socket's path has at most %d bytes, this has %d: %s", k.name, path, maxSocketPath, len(path), k.advice)
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", k.name, path, err, k.advice)
	}
	if err := checkOwner(dir, os.Geteuid()); err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", k.name, path, err, k.advice)
	}
	turn, err := waitTurn(dir)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", k.name, path, err, k.advice)
	}
	defer turn.Close()
	if err := k.removeStale(path); err != nil {
		return nil, err
	}
	// The mode of a socket comes from the umask, which is the process's; bind it
	// in a private directory and move it to its place instead.
	private, err := os.MkdirTemp(dir, ".nicd-")
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", k.name, path, err, k.advice)
	}
	defer os.RemoveAll(private)
	hidden := filepath.Join(private, "s")
	listener, err := listenIn(private)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", k.name, path, err)
	}
	listener.SetUnlinkOnClose(false)
	err = os.Chmod(hidden, 0o600)
	if err == nil {
		// Link and not rename: it fails if another process was faster.
		err = os.Link(hidden, path)
	}
	var made os.FileInfo
	if err == nil {
		made, err = os.Lstat(hidden)
	}
	if err != nil {
		listener.Close()
		return nil, fmt.Errorf("%s %s: %w", k.name, path, err)
	}
	return &privateListener{UnixListener: listener, path: path, made: made}, nil
}

// checkOwner refuses a directory of another user's, who could put a socket of his own
// in the place of ours: the default path may be below /tmp, where anyone can be
// first. Root may use what directory it likes.
func checkOwner(dir string, uid int) error {
	st, err := os.Stat(dir)
	if err != nil {
		return err
	}
	owner := int(st.Sys().(*syscall.Stat_t).Uid)
	if uid == 0 || owner == 0 || owner == uid {
		return nil
	}
	return fmt.Errorf("%s belongs to user %d", dir, owner)
}

// waitTurn locks a directory until the file is closed. Of two that find what a dead
// process left, the second would else remove the socket of the first.
func waitTurn(dir string) (*os.File, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(d.Fd()), unix.LOCK_EX)
		if err == nil {
			return d, nil
		}
		if !errors.Is(err, unix.EINTR) {
			d.Close()
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		}
	}
}

// maxSocketPath is the longest path of a socket: sun_path without the zero at its
// end (unix(7)).
const maxSocketPath = 107

// listenIn makes a socket "s" in a directory, whose path may be too long for one.
func listenIn(dir string) (*net.UnixListener, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return net.ListenUnix("unix", &net.UnixAddr{Name: fmt.Sprintf("/proc/self/fd/%d/s", d.Fd()), Net: "unix"})
}

// removeStale makes way for a new socket.
func (k socketKind) removeStale(path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", k.name, path, err)
	}
	if st.Mode()&os.ModeSocket == 0 {
		return fmt.Errorf("%s %s: something that is not a socket is there: %s", k.name, path, k.advice)
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		owner := peer(conn)
		conn.Close()
		return fmt.Errorf("%s %s: %s%s: stop it, or %s", k.name, path, k.taken, owner, k.advice)
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("%s %s: %w: %s", k.name, path, err, k.advice)
	}
	return os.Remove(path)
}

func peer(conn net.Conn) string {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return ""
	}
	var pid int32
	_ = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = cred.Pid
		}
	})
	if pid == 0 {
		return ""
	}
	return fmt.Sprintf(" (pid %d)", pid)
}

// borrowedListener is a listener without its end: closing it makes Accept return,
// and leaves the socket where it is.
type borrowedListener struct{ *privateListener }

func (l borrowedListener) Close() error { return l.SetDeadline(time.Unix(1, 0)) }

// privateListener removes its socket when it is closed: before it stops listening,
// since a path where nobody listens may be somebody else's by the time. It is
// somebody else's already if the socket was removed meanwhile and another nicd made
// one there; that one stays.
type privateListener struct {
	*net.UnixListener
	path string
	made os.FileInfo // the socket
}

func (l *privateListener) Close() error {
	st, err := os.Lstat(l.path)
	if err == nil && os.SameFile(st, l.made) {
		err = os.Remove(l.path)
	}
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, l.UnixListener.Close())
}
