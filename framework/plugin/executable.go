package plugin

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// openExecutable opens the file to run. What is checked is what runs: the
// process is made from the descriptor returned, and with a checksum to keep
// from a sealed copy, so that nothing can be exchanged in between.
func openExecutable(path, sum string) (*os.File, error) {
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &Error{Plugin: path, Op: "start", Err: ErrMissing, Detail: "install it or correct the path"}
	case errors.Is(err, fs.ErrPermission):
		return nil, &Error{Plugin: path, Op: "start", Err: ErrNotExecutable, Detail: "it can't be read: correct its permissions"}
	case err != nil:
		return nil, &Error{Plugin: path, Op: "start", Err: err}
	}
	st, err := f.Stat()
	if err == nil && (!st.Mode().IsRegular() || st.Mode()&0o111 == 0) {
		err = &Error{Plugin: path, Op: "start", Err: ErrNotExecutable,
			Detail: fmt.Sprintf("mode is %v: a plugin is a file with the execute bit (chmod +x)", st.Mode())}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	if sum == "" {
		return f, nil
	}
	defer f.Close()
	return sealedCopy(f, path, sum)
}

// sealedCopy copies f to memory that nobody can write to any more, provided
// that its sha256 is sum.
func sealedCopy(f *os.File, path, sum string) (*os.File, error) {
	c, err := execMemfd("nicd-plugin")
	if err != nil {
		return nil, &Error{Plugin: path, Op: "start", Err: err}
	}
	hash := sha256.New()
	if _, err := io.Copy(io.MultiWriter(c, hash), f); err != nil {
		c.Close()
		return nil, &Error{Plugin: path, Op: "start", Err: err, Detail: "copying it"}
	}
	if got := hex.EncodeToString(hash.Sum(nil)); !strings.EqualFold(got, sum) {
		c.Close()
		return nil, &Error{Plugin: path, Op: "start", Err: ErrChecksum,
			Detail: fmt.Sprintf("the file's is %s, the config says %s: restore the file or correct the config", got, sum)}
	}
	ro, err := seal(c)
	c.Close() // a file that is open for writing can't be executed
	if err != nil {
		return nil, &Error{Plugin: path, Op: "start", Err: err}
	}
	return ro, nil
}

func execMemfd(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3 all memfds are executable
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("memfd: %w", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// seal makes a memfd immutable and opens it again for reading.
func seal(f *os.File) (*os.File, error) {
	const seals = unix.F_SEAL_WRITE | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
}
