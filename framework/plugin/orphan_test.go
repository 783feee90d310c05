package plugin

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rs/zerolog"
)

func itoa(n int) string { return strconv.Itoa(n) }

// envAsNicd has the directory for sockets.
const envAsNicd = "NICD_TEST_AS_NICD"

const pidPrefix = "plugin pid "

// TestAsNicd is not a test but the nicd of TestPluginEndsWithNicd.
func TestAsNicd(t *testing.T) {
	dir := os.Getenv(envAsNicd)
	if dir == "" {
		t.Skip("run by TestPluginEndsWithNicd")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := Start(t.Context(), Options{Path: exe, Env: []string{envMode + "=good"}, Log: zerolog.Nop(), SocketDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(p.socketDir, "*")); len(left) > 0 {
		t.Fatalf("files in the file system: %v", left)
	}
	fmt.Printf("%s%d\n", pidPrefix, p.PID())
	<-p.Died()
}

// pidIn reads the plugin's pid from what TestAsNicd prints.
func pidIn(t *testing.T, r io.Reader) int {
	t.Helper()
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if n, ok := cutPID(lines.Text()); ok {
			return n
		}
	}
	t.Fatal("no pid")
	return 0
}

func cutPID(line string) (int, bool) {
	if len(line) < len(pidPrefix) || line[:len(pidPrefix)] != pidPrefix {
		return 0, false
	}
	n, err := strconv.Atoi(line[len(pidPrefix):])
	return n, err == nil
}
