package config

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

//go:embed default.hcl
var defaultSource string

// DefaultName is what messages call the embedded config.
const DefaultName = "default.hcl"

// maxSource is the longest config, in bytes.
const maxSource = 256 << 10

// DefaultSource is the text of the embedded config.
func DefaultSource() string { return defaultSource }

// Default is the embedded config: a vmxnet3 and an 82574L on one wire, and a TCP
// stream each way. It names the drivers vmxnet3 and e1000.
func Default(v Vocabulary) (*Config, error) { return Parse(DefaultName, []byte(defaultSource), v) }

// Load reads and checks a file. An error is Diagnostics, or says in one line why
// the file can't be read.
func Load(path string, v Vocabulary) (*Config, error) {
	src, err := read(path)
	if err != nil {
		var pe *fs.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return nil, fmt.Errorf("config %s: %w", path, err)
	}
	return Parse(path, src, v)
}

// read reads a file as far as it takes to see that it is too long for a config: it
// may be a disk, or have no end.
func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxSource+1))
}

// Parse checks a config's text. The name of the file is for messages and for
// paths in it, which are relative to its directory. An error is Diagnostics and
// has every problem found.
func Parse(filename string, src []byte, v Vocabulary) (*Config, error) {
	d := &decoder{filename: filename, src: src, vocabulary: v}
	if len(src) > maxSource {
		d.problems = Diagnostics{{File: filename, Text: fmt.Sprintf("a config has at most %d bytes, this has more", maxSource)}}
		return nil, d.problems
	}
	if at := notText(src); at >= 0 {
		d.problems = Diagnostics{{File: filename, Text: fmt.Sprintf("this is no text (UTF-8), from byte %d on: a config is written as \"nicd config show\" prints one", at)}}
		return nil, d.problems
	}
	if at, what := excess(src, filename); what != "" {
		d.problem(at, "%s", what)
		return nil, d.problems
	}
	file, diags := hclsyntax.ParseConfig(src, filename, hcl.InitialPos)
	if diags.HasErrors() {
		d.hcl(diags)
		return nil, d.problems.sorted()
	}
	c := d.config(file.Body.(*hclsyntax.Body))
	if d.problems == nil {
		d.check(c)
	}
	if d.problems != nil {
		return nil, d.problems.sorted()
	}
	return c, nil
}

// notText is where src stops being text, -1 if it is all text.
func notText(src []byte) int {
	for at := 0; at < len(src); {
		r, n := utf8.DecodeRune(src[at:])
		if r == 0 || r == utf8.RuneError && n == 1 {
			return at
		}
		at += n
	}
	return -1
}
