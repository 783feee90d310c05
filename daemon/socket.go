package daemon

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
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

// listenAdmin makes the admin socket, of mode 0600 from its first moment on. A
// socket that a dead daemon left is replaced; that of a living one is not.
func listenAdmin(path string) (net.Listener, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("admin socket %s: %w: choose another path with --socket", path, err)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	// The mode of a socket comes from the umask, which is the process's; bind it
	// in a private directory and move it to its place instead.
	private, err := os.MkdirTemp(dir, ".nicd-")
	if err != nil {
		return nil, fmt.Errorf("admin socket %s: %w: choose another path with --socket", path, err)
	}
	defer os.RemoveAll(private)
	hidden := filepath.Join(private, "s")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: hidden, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("admin socket %s: %w", path, err)
	}
	listener.SetUnlinkOnClose(false)
	err = os.Chmod(hidden, 0o600)
	if err == nil {
		// Link and not rename: it fails if another daemon was faster.
		err = os.Link(hidden, path)
	}
	if err != nil {
		listener.Close()
		return nil, fmt.Errorf("admin socket %s: %w", path, err)
	}
	return &adminListener{Listener: listener, path: path}, nil
}

// removeStale makes way for a new socket.
func removeStale(path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("admin socket %s: %w", path, err)
	}
	if st.Mode()&os.ModeSocket == 0 {
		return fmt.Errorf("admin socket %s: something that is not a socket is there: choose another path with --socket", path)
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		owner := peer(conn)
		conn.Close()
		return fmt.Errorf("admin socket %s: a nicd runs there already%s: stop it, or choose another path with --socket", path, owner)
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("admin socket %s: %w: choose another path with --socket", path, err)
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

// adminListener removes its socket when it is closed.
type adminListener struct {
	net.Listener
	path string
}

func (l *adminListener) Close() error {
	err := l.Listener.Close()
	if removed := os.Remove(l.path); err == nil && !errors.Is(removed, os.ErrNotExist) {
		err = removed
	}
	return err
}
