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

// maxProgram is how long a plugin's file may be: its copy is memory. A driver with
// its symbols has some 20 MB.
const maxProgram = 1 << 30

// openExecutable opens the file to run and says what its sha256 is, which has to
// be want unless that is "". What was summed is what runs: the process is made
// from the descriptor returned, that of a sealed copy, so that nothing can be
// exchanged in between.
func openExecutable(path, want string) (exe *os.File, sum string, err error) {
	f, err := openProgram(path)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	exe, sum, err = sealedCopy(f)
	if err != nil {
		return nil, "", &Error{Plugin: path, Op: "start", Err: err, Detail: "copying it"}
	}
	if want != "" && !strings.EqualFold(sum, want) {
		exe.Close()
		return nil, "", &Error{Plugin: path, Op: "start", Err: ErrChecksum,
			Detail: fmt.Sprintf("the file's is %s, and %s was expected: restore the file, or correct the config, or load the plugin again", sum, want)}
	}
	return exe, sum, nil
}

// openProgram opens a file that can be executed.
func openProgram(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO's opening would wait for a writer
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
	if err == nil && st.Size() > maxProgram {
		err = &Error{Plugin: path, Op: "start", Err: ErrNotPlugin,
			Detail: fmt.Sprintf("the file has %d bytes, a plugin at most %d", st.Size(), maxProgram)}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// sealedCopy copies f to memory that nobody can write to any more, and sums it.
func sealedCopy(f *os.File) (exe *os.File, sum string, err error) {
	c, err := execMemfd("nicd-plugin")
	if err != nil {
		return nil, "", err
	}
	defer c.Close() // a file that is open for writing can't be executed
	hash := sha256.New()
	if _, err := io.Copy(io.MultiWriter(c, hash), io.LimitReader(f, maxProgram)); err != nil {
		return nil, "", err
	}
	if exe, err = seal(c); err != nil {
		return nil, "", err
	}
	return exe, hex.EncodeToString(hash.Sum(nil)), nil
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
