package plugin

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"testing"

	"github.com/rs/zerolog"
)

func itoa(n int) string { return strconv.Itoa(n) }

const pidPrefix = "plugin pid "

// TestAsNicd is not a test but the nicd of TestPluginEndsWithNicd.
func TestAsNicd(t *testing.T) {
	if os.Getenv("NICD_TEST_AS_NICD") == "" {
		t.Skip("run by TestPluginEndsWithNicd")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := Start(t.Context(), Options{Path: exe, Env: []string{envMode + "=good"}, Log: zerolog.Nop(), SocketDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
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
