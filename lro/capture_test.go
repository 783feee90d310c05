package lro

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// readCapture returns the frames of a pcapng file that consists of what testdata/record writes, in little-endian order.
func readCapture(t *testing.T, name string) [][]byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var frames [][]byte
	for len(b) >= 12 {
		kind, length := binary.LittleEndian.Uint32(b), int(binary.LittleEndian.Uint32(b[4:]))
		if length < 12 || length > len(b) {
			t.Fatalf("%s: a block of %d bytes where %d are left", name, length, len(b))
		}
		if body := b[8 : length-4]; kind == 6 {
			frames = append(frames, body[20:][:binary.LittleEndian.Uint32(body[12:])])
		}
		b = b[length:]
	}
	return frames
}

// captures returns all capture files.
func captures(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob("testdata/*.pcapng")
	if err != nil || len(names) < 8 {
		t.Fatalf("captures: %q, %v", names, err)
	}
	return names
}

// TestCaptures replays real traffic in batches of several sizes: every frame comes back byte for byte, through the
// re-segmenter of the tests and through gso, and the groups are those of the reference model.
func TestCaptures(t *testing.T) {
	for _, name := range captures(t) {
		frames := readCapture(t, name)
		for _, size := range []int{1, 8, 64, len(frames)} {
			t.Run(fmt.Sprintf("%s in batches of %d", strings.TrimSuffix(filepath.Base(name), ".pcapng"), size), func(t *testing.T) {
				merged := 0
				for at := 0; at < len(frames); at += size {
					merged += replay(t, frames[at:min(at+size, len(frames))])
				}
				t.Logf("%d frames, %d of them merged behind another", len(frames), merged)
				// Small records have PSH on each: nothing to merge there, and all the more to leave alone.
				if none := strings.Contains(name, "records") || size == 1; none != (merged == 0) {
					t.Error("not what was expected")
				}
			})
		}
	}
}

// replay runs one batch with all checks and returns how many packets joined another.
func replay(t *testing.T, frames [][]byte) int {
	t.Helper()
	in := make([]Packet, len(frames))
	for i, f := range frames {
		in[i] = Packet{Data: bytes.Clone(f), Len: uint32(len(f))}
	}
	want := ""
	for i, g := range modelBatch(in, frames, Options{}) {
		if i > 0 {
			want += " "
		}
		want += fmt.Sprint(g)
	}
	got, out, _ := runBatch(t, Options{}, in)
	if got != want {
		t.Errorf("got      %s\nthe model %s", got, want)
	}
	for i := range out {
		m := members(t, in, &out[i])
		for k, f := range segmentAgain(t, in, &out[i]) {
			if !bytes.Equal(f, frames[m[k]]) {
				t.Errorf("gso: frame %d: %s", m[k], difference(f, frames[m[k]]))
			}
		}
	}
	return len(in) - len(out)
}

// TestCapturesHoldWhatTheySay: the captures contain what they were made for.
func TestCapturesHoldWhatTheySay(t *testing.T) {
	has := func(name string, what string, found func(f []byte, l3, l4 int) bool) {
		for _, f := range readCapture(t, filepath.Join("testdata", name+".pcapng")) {
			l4 := 34
			if f[12] == 0x86 {
				l4 = 54
			}
			if arp := f[12] == 8 && f[13] == 6; (arp || len(f) >= l4+20) && found(append(bytes.Clone(f), make([]byte, 40)...), 14, l4) {
				return
			}
		}
		t.Errorf("%s: no %s", name, what)
	}
	has("ecn", "CE mark", func(f []byte, l3, l4 int) bool { return f[l3+1]&3 == 3 })
	has("ecn", "ECE on data's acknowledgement", func(f []byte, l3, l4 int) bool { return f[l4+13] == 0x50 })
	has("ecn", "CWR", func(f []byte, l3, l4 int) bool { return f[l4+13]&0x92 == 0x90 })
	has("loss", "SACK block", func(f []byte, l3, l4 int) bool { return f[l4+12]>>4 == 11 && f[l4+33] == 1 && f[l4+34] == 5 })
	has("reorder", "SACK block", func(f []byte, l3, l4 int) bool { return f[l4+12]>>4 == 11 && f[l4+33] == 1 && f[l4+34] == 5 })
	has("ipv6", "flow label", func(f []byte, l3, l4 int) bool { return f[l3+1]&15|f[l3+2]|f[l3+3] != 0 })
	has("mixed", "UDP", func(f []byte, l3, l4 int) bool { return f[12] == 8 && f[13] == 0 && f[l3+9] == 17 })
	has("mixed", "ARP", func(f []byte, l3, l4 int) bool { return f[12] == 8 && f[13] == 6 })
	has("window", "small window", func(f []byte, l3, l4 int) bool { return f[l4+14] == 0 && f[l4+15] < 16 && f[l4+13] == 0x10 })
	has("no-timestamps", "header without options", func(f []byte, l3, l4 int) bool { return f[l4+12]>>4 == 5 && len(f) > 1000 })
}
