// Package rooms holds the test that keeps the project's structure: who may
// import whom, and which few files may use unsafe or talk to the kernel. A new
// arrow is a decision; it is made here.
package rooms

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// rooms says what a folder (and those below it, unless they have a line of their
// own) may import of this module. "" for nothing.
var rooms = map[string]string{
	"bus":                "bus",
	"lro":                "internal/checksum",
	"gso":                "internal/checksum",
	"internal/checksum":  "",
	"internal/schedstat": "",
	"framework":          "bus",
	"framework/ring":     "framework",
	"framework/engine":   "framework framework/ring lro gso bus internal/checksum",
	"framework/link":     "framework framework/engine bus",
	"framework/plugin":   "framework framework/engine framework/link proto/driverpb bus internal/schedstat",
	"sim":                "bus sim",
	"drivers/vmxnet3":    "framework framework/ring bus",
	"drivers/e1000":      "framework framework/ring bus",
	"port":               "framework gso lro internal/checksum",
	"config":             "framework",
	"inventory":          "framework bus",
	"console":            "proto/adminpb framework/drivertest",
	"proto":              "",
	// Both run a daemon by its exported API alone, as an operator would.
	"soak":   "config daemon framework proto/adminpb internal/netspace internal/schedstat",
	"matrix": "config daemon framework proto/adminpb internal/netspace",
}

// mayUse are the imports that need a reason, and the files and folders that have
// one, said at their top.
var mayUse = map[string][]string{
	"unsafe": {
		"bus/words.go", "bus/eventfd.go", "bus/mmio/", "bus/vfio/uapi.go", "framework/ring/view.go", "framework/link/view.go",
		"port/tap/", "bus/qemu/", "proto/", "guest/init/", "framework/drivertest/vfiobench/netdev.go",
	},
	"golang.org/x/sys/unix": {
		"bus/", "daemon/socket.go", "daemon/usage.go", "framework/engine/pin.go", "framework/plugin/", "port/tap/", "sim/tap/",
		"guest/init/", "framework/drivertest/vfiobench/netdev.go",
		"lro/testdata/",
	},
}

func TestRooms(t *testing.T) {
	seen := 0
	eachFile(t, func(path string, imports []string) {
		room := roomOf(filepath.ToSlash(filepath.Dir(path)))
		if room == "" {
			return
		}
		seen++
		allowed := strings.Fields(rooms[room])
		for _, i := range imports {
			target, ours := strings.CutPrefix(i, "nicd/")
			if ours && target != room && !strings.HasPrefix(target, room+"/") && !under(target, allowed) {
				t.Errorf("%s imports %s: %s may import %q", path, i, room, rooms[room])
			}
		}
	})
	if seen < 50 {
		t.Errorf("only %d files were looked at", seen)
	}
}

func TestDangerousImports(t *testing.T) {
	eachFile(t, func(path string, imports []string) {
		for _, i := range imports {
			files, dangerous := mayUse[i]
			if dangerous && !slices.ContainsFunc(files, func(f string) bool { return path == f || strings.HasSuffix(f, "/") && strings.HasPrefix(path, f) }) {
				t.Errorf("%s imports %s: only %v may", path, i, files)
			}
		}
	})
}

func under(target string, allowed []string) bool {
	return slices.ContainsFunc(allowed, func(a string) bool { return target == a || a != "framework" && strings.HasPrefix(target, a+"/") })
}

// roomOf is the longest line of rooms that a folder is in.
func roomOf(dir string) string {
	best := ""
	for room := range rooms {
		if (dir == room || strings.HasPrefix(dir, room+"/")) && len(room) > len(best) {
			best = room
		}
	}
	if best == "framework" && dir != "framework" {
		return "" // drivertest and the like import what they test
	}
	return best
}

// eachFile visits the module's Go files but tests and generated code.
func eachFile(t *testing.T, visit func(path string, imports []string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "bench") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".pb.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		var imports []string
		for _, i := range f.Imports {
			imports = append(imports, strings.Trim(i.Path.Value, `"`))
		}
		rel, err := filepath.Rel(root, path)
		visit(filepath.ToSlash(rel), imports)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
