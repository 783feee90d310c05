package daemon

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"nicd/drivers/vmxnet3"
	"nicd/framework"
	"nicd/framework/plugin"
)

// olderVMXNET3 is the vmxnet3 driver's plugin as it would be without some quirks.
func olderVMXNET3(without ...string) *driver {
	d := vmxnet3.New().Describe()
	knows := slices.DeleteFunc(framework.QuirksOf(d.Name), func(q framework.QuirkInfo) bool { return slices.Contains(without, q.Name) })
	return &driver{name: d.Name, path: "/usr/lib/nicd/old", description: plugin.Description{Description: d, Knows: knows}}
}

func resolveFor(t *testing.T, d *driver, settings ...framework.QuirkSetting) *framework.Resolution {
	t.Helper()
	r, err := framework.ResolveQuirks(framework.QuirkSources{
		Driver: d.name, Declarations: d.description.Quirks, Defines: d.description.Knows, InterfaceConfig: settings,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A plugin that does not know a quirk runs while the quirk is at its default, is
// not told of it, and is refused when it was set: it would be ignored.
func TestOlderPlugin(t *testing.T) {
	const quirk = "min-frame"
	older := olderVMXNET3(quirk)
	set := func(value string) framework.QuirkSetting {
		return framework.QuirkSetting{Name: quirk, Value: value, Origin: "nicd.hcl:12: interface vmx0"}
	}
	for _, settings := range [][]framework.QuirkSetting{nil, {set(framework.LookupQuirk(quirk).Default)}} {
		r := resolveFor(t, older, settings...)
		values, err := older.valuesOf(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, told := values[quirk]; told || len(values) != len(r.Map())-1 {
			t.Errorf("it is told %v", values)
		}
	}
	_, err := older.valuesOf(resolveFor(t, older, set("61")))
	if !errors.Is(err, framework.ErrUnknownQuirk) || strings.Contains(err.Error(), "\n") {
		t.Fatal(err)
	}
	for _, want := range []string{"min-frame = 61", "nicd.hcl:12: interface vmx0", "/usr/lib/nicd/old", "install the plugin that belongs to this nicd"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

// A plugin that knows a quirk and not the value that it is set to is refused, too.
func TestOlderPluginWithFewerValues(t *testing.T) {
	older := olderVMXNET3()
	at := slices.IndexFunc(older.description.Knows, func(q framework.QuirkInfo) bool { return q.Name == "lro-owner" })
	older.description.Knows[at].Choices = []string{"none", "software", "hardware-only"}
	if _, err := older.valuesOf(resolveFor(t, older, framework.QuirkSetting{Name: "lro-owner", Value: "software"})); err != nil {
		t.Error(err)
	}
	if _, err := older.valuesOf(resolveFor(t, older, framework.QuirkSetting{Name: "lro-owner", Value: "hybrid"})); !errors.Is(err, framework.ErrQuirkValue) {
		t.Errorf("%v", err)
	}
}

// What an older plugin can't have is refused before anything is changed; what it
// can goes on.
func TestOlderPluginWhileRunning(t *testing.T) {
	d, _ := startPlugins(t, pairText(1, "vmxnet3"))
	i := d.find("a1")
	i.changing.Lock()
	i.driver = olderVMXNET3("min-frame")
	i.changing.Unlock()
	if _, err := d.Set(t.Context(), "a1", []Assignment{{"min-frame", "61"}}, true); err == nil || !strings.Contains(err.Error(), "does not know that") {
		t.Errorf("min-frame=61: %v", err)
	}
	if _, err := d.Set(t.Context(), "a1", []Assignment{{"mtu", "1400"}}, false); err != nil {
		t.Error(err)
	}
	was := d.streamed("ab1")
	until(t, "traffic", 20*time.Second, func() bool { return d.streamed("ab1") > was+1<<20 })
}
