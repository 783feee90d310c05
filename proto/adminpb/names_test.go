package adminpb

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
)

var update = flag.Bool("update", false, "add what is new to the list of names")

const namesFile = "testdata/names.txt"

// TestNamesStay: what a nicd answers, over gRPC and as JSON, keeps its names, numbers
// and types. Fields may be added (go test -update); one that has been published is
// neither renamed nor taken away.
func TestNamesStay(t *testing.T) {
	now := names()
	f, err := os.Open(namesFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var published []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		published = append(published, lines.Text())
		if !slices.Contains(now, lines.Text()) {
			t.Errorf("gone or changed: %s", lines.Text())
		}
	}
	if len(published) < 100 {
		t.Errorf("%s lists %d names", namesFile, len(published))
	}
	if slices.Equal(now, published) || t.Failed() {
		return
	}
	if !*update {
		t.Error("fields are new or in another order: run this test with -update")
		return
	}
	if err := os.WriteFile(namesFile, []byte(strings.Join(now, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// names are all calls and fields, a line each.
func names() (list []string) {
	file := File_admin_proto
	for i := range file.Services().Len() {
		s := file.Services().Get(i)
		for j := range s.Methods().Len() {
			m := s.Methods().Get(j)
			list = append(list, fmt.Sprintf("%s(%s) %s", m.FullName(), m.Input().Name(), m.Output().Name()))
		}
	}
	for i := range file.Messages().Len() {
		m := file.Messages().Get(i)
		for j := range m.Fields().Len() {
			f := m.Fields().Get(j)
			list = append(list, fmt.Sprintf("%s %d %s %s", f.FullName(), f.Number(), f.Cardinality(), kind(f)))
		}
	}
	return list
}

func kind(f protoreflect.FieldDescriptor) string {
	if m := f.Message(); m != nil && !f.IsMap() {
		return string(m.Name())
	}
	return f.Kind().String()
}
