package plugin

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"nicd/framework"
	"nicd/proto/driverpb"
)

// What a plugin says of itself, of what happened and of what failed is as long as a
// line can be and does nothing to a terminal.
func TestWordsAreBounded(t *testing.T) {
	long := strings.Repeat("ä", 1<<19)
	if got := eventFrom(&driverpb.Event{Reason: long}).Reason; len(got) > maxWords+3 || !utf8.ValidString(got) {
		t.Errorf("a reason of %d bytes", len(got))
	}
	if got := fromStatus(status.Error(codes.NotFound, long)); len(got.Error()) > maxWords+3 || !errors.Is(got, framework.ErrNotOurs) {
		t.Errorf("an error of %d bytes", len(got.Error()))
	}
	for _, q := range []framework.QuirkInfo{{Name: "a", Doc: "\x1b[2J"}, {Name: "a", Choices: []string{"b", "\x1b"}}, {Name: long}} {
		d := Description{Description: framework.Description{Name: "nic"}, Knows: []framework.QuirkInfo{q}}
		if err := d.Check(); !errors.Is(err, framework.ErrInfo) {
			t.Errorf("quirk %.40v: %v", q, err)
		}
	}
}

// A plugin has none of the descriptors that nicd itself was given at its start, such
// as another interface's TAP device.
func TestNothingIsInherited(t *testing.T) {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], 0); err != nil { // as exec leaves them
		t.Fatal(err)
	}
	defer closeAll(pipe[:])
	given, err := os.Readlink("/proc/self/fd/" + itoa(pipe[0]))
	if err != nil {
		t.Fatal(err)
	}
	p, _ := start(t, "good")
	has, err := filepath.Glob("/proc/" + itoa(p.PID()) + "/fd/*")
	if err != nil || len(has) < 3 {
		t.Fatal(has, err)
	}
	for _, fd := range has {
		if what, _ := os.Readlink(fd); what == given {
			t.Errorf("the plugin has %s: %s", fd, what)
		}
	}
}
