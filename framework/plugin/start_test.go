package plugin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nicd/framework"
)

// mustFail starts a plugin that can't be started and checks that the error is
// one line, of the right kind, and says what it should.
func mustFail(t *testing.T, o Options, kind error, says ...string) {
	t.Helper()
	p, err := Start(t.Context(), o)
	if err == nil {
		p.Kill(context.Background())
		t.Fatal("it started")
	}
	var e *Error
	if !errors.As(err, &e) || !errors.Is(err, kind) {
		t.Errorf("error %v (%T), want %v", err, err, kind)
	}
	text := err.Error()
	if strings.ContainsAny(text, "\n\r") {
		t.Errorf("more than a line: %q", text)
	}
	for _, s := range append(says, o.name()) {
		if !strings.Contains(text, s) {
			t.Errorf("%q does not say %q", text, s)
		}
	}
	t.Log(text)
}

func TestMissing(t *testing.T) {
	o, _ := options(t, "good")
	o.Path = filepath.Join(t.TempDir(), "nothing")
	mustFail(t, o, ErrMissing, "correct the path")
}

func TestNotExecutable(t *testing.T) {
	o, _ := options(t, "good")
	o.Path = filepath.Join(t.TempDir(), "plugin")
	if err := os.WriteFile(o.Path, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	mustFail(t, o, ErrNotExecutable, "chmod +x", "-rw-r--r--")
	o.Path = t.TempDir()
	mustFail(t, o, ErrNotExecutable)
	// Nor a FIFO, which nobody writes to: it is not waited for.
	o.Path = filepath.Join(t.TempDir(), "plugin")
	if err := unix.Mkfifo(o.Path, 0o755); err != nil {
		t.Fatal(err)
	}
	mustFail(t, o, ErrNotExecutable)
}

// A file with the execute bit that the kernel does not know how to run.
func TestNoProgram(t *testing.T) {
	o, _ := options(t, "good")
	o.Path = filepath.Join(t.TempDir(), "plugin")
	if err := os.WriteFile(o.Path, []byte("\x00text"), 0o755); err != nil {
		t.Fatal(err)
	}
	mustFail(t, o, ErrNotPlugin, "exec format")
}

// A file that is no program by its size is not copied to memory to find that out.
func TestHugeFile(t *testing.T) {
	o, _ := options(t, "good")
	o.Path = filepath.Join(t.TempDir(), "plugin")
	if err := os.WriteFile(o.Path, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(o.Path, 1<<42); err != nil {
		t.Fatal(err)
	}
	mustFail(t, o, ErrNotPlugin, "4398046511104 bytes")
}

func sum(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func TestChecksum(t *testing.T) {
	o, _ := options(t, "good")
	right := sum(t, o.Path)
	o.SHA256 = strings.Repeat("0", 64)
	mustFail(t, o, ErrChecksum, right, o.SHA256)
	o.SHA256 = strings.ToUpper(right)
	p, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// What was checked is what runs, even if the file changes in between.
func TestChecksumPinsTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plugin")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho genuine\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	exe, _, err := openExecutable(path, sum(t, path))
	if err != nil {
		t.Fatal(err)
	}
	defer exe.Close()
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho forged\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	p := newProc(path)
	p.stdout, p.stderr = &output{}, &output{}
	ours, theirs, err := controlPair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	defer theirs.Close()
	if err := p.start(exe, nil, theirs); err != nil {
		t.Fatal(err)
	}
	<-p.exited
	if line, _ := p.first.get(); line != "genuine" {
		t.Fatalf("it printed %q (%v, %q)", line, p.state, p.stderr.lastLine())
	}
}

// The checksum of a file that was not to have one is that of what runs: a plugin
// that exchanges its file while it is asked what it is gains nothing.
func TestChecksumIsOfWhatRuns(t *testing.T) {
	o, _ := options(t, "turncoat")
	program, err := os.ReadFile(o.Path)
	if err != nil {
		t.Fatal(err)
	}
	o.Path = filepath.Join(t.TempDir(), "plugin")
	if err := os.WriteFile(o.Path, program, 0o755); err != nil {
		t.Fatal(err)
	}
	o.Env = append(o.Env, envFile+"="+o.Path)
	genuine := sum(t, o.Path)
	p, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	forged := sum(t, o.Path)
	if p.SHA256() != genuine || genuine == forged {
		t.Fatalf("the checksum is %s, that of the file was %s and is %s", p.SHA256(), genuine, forged)
	}
	o.SHA256 = p.SHA256()
	mustFail(t, o, ErrChecksum, genuine, forged)
}

func TestGarbageInsteadOfHandshake(t *testing.T) {
	o, _ := options(t, "garbage")
	mustFail(t, o, ErrNotPlugin, "Hello, I am a shell script.")
}

func TestScriptIsNoPlugin(t *testing.T) {
	o, _ := options(t, "good")
	o.Path = filepath.Join(t.TempDir(), "plugin")
	if err := os.WriteFile(o.Path, []byte("#!/bin/sh\necho 1'|'1'|'tcp\nexec sleep 100\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	mustFail(t, o, ErrNotPlugin, "1|1|tcp")
}

func TestExitsBeforeHandshake(t *testing.T) {
	o, _ := options(t, "exit")
	mustFail(t, o, ErrNotPlugin, "exit status 3", "cannot open shared object")
}

func TestMuteTimesOut(t *testing.T) {
	o, _ := options(t, "mute")
	o.StartTimeout = 200 * time.Millisecond
	mustFail(t, o, ErrTimeout, "200ms")
}

// A plugin that says where it is, and does not answer there: nobody is, or nobody
// takes the connection. Nothing is left of trying.
func TestNobodyBehindTheHandshake(t *testing.T) {
	for _, mode := range []string{"deaf", "absent"} {
		t.Run(mode, func(t *testing.T) {
			o, _ := options(t, mode)
			o.StartTimeout = time.Second
			began := time.Now()
			_, err := Start(t.Context(), o)
			var e *Error
			if !errors.As(err, &e) || errors.Is(err, ErrExited) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v", err)
			}
			t.Log(err)
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// What is wrong with a plugin's description is what the error says, not that nicd
// then killed it.
func TestNonsenseDescription(t *testing.T) {
	o, _ := options(t, "unprintable")
	mustFail(t, o, framework.ErrInfo, "version", "is not printable")
}

func TestStartEndsWithContext(t *testing.T) {
	o, _ := options(t, "mute")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := Start(ctx, o); !errors.Is(err, ErrTimeout) {
		t.Fatal(err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(cancelled, o); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestOtherProtocolVersion(t *testing.T) {
	o, _ := options(t, "version")
	mustFail(t, o, ErrVersion, "version 99", "version 1", "install the plugin that belongs")
}

func TestSocketDirTooLong(t *testing.T) {
	o, _ := options(t, "good")
	o.SocketDir = filepath.Join(t.TempDir(), strings.Repeat("x", 100))
	if err := os.Mkdir(o.SocketDir, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := Start(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "choose a shorter one") {
		t.Fatal(err)
	}
}
