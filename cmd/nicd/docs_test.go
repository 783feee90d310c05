package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nicd/config"
)

// TestConfigsInDocs: the configs that the pages show are good ones.
func TestConfigsInDocs(t *testing.T) {
	found := 0
	for _, page := range []string{"config.md", "devices.md", "ports.md"} {
		text, err := os.ReadFile(filepath.Join("../../docs", page))
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range strings.Split(string(text), "```hcl\n")[1:] {
			source, _, _ := strings.Cut(block, "```")
			if _, err := config.Parse(page, []byte(source), vocabulary()); err != nil {
				t.Errorf("%s: %v", page, err)
			}
			found++
		}
	}
	if found < 3 {
		t.Errorf("%d configs in the pages", found)
	}
}
