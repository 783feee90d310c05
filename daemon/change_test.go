package daemon

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"nicd/bus"
	"nicd/config"
	"nicd/framework"
	"nicd/framework/engine"
	"nicd/framework/link"
)

// fakeControl is an engine that does as it is told, or fails.
type fakeControl struct {
	engine.Control
	plan   engine.Plan
	quirks map[string]string
	calls  []string
	fail   error // of Change
}

func (c *fakeControl) Effect(_ context.Context, p engine.Plan) (framework.Effect, error) {
	switch {
	case p.MTU == 666:
		return 0, errors.New("the device does not like that")
	case p.Restart || p.MTU != c.plan.MTU || p.RxQueues != c.plan.RxQueues || p.TxQueues != c.plan.TxQueues:
		return framework.Reset, nil
	case p.Features&^framework.LRO != c.plan.Features&^framework.LRO:
		return framework.Quiesce, nil
	}
	return framework.Live, nil
}

func (c *fakeControl) Change(ctx context.Context, p engine.Plan) (framework.Effect, error) {
	c.calls = append(c.calls, "change")
	if c.fail != nil {
		return framework.Reset, c.fail
	}
	effect, _ := c.Effect(ctx, p)
	p.Restart = false
	c.plan = p
	return effect, nil
}

func (c *fakeControl) SetQuirks(_ context.Context, values map[string]string) error {
	c.calls = append(c.calls, "quirks")
	c.quirks = values
	return nil
}

// fakePort notes what it is told to keep to.
type fakePort struct {
	framework.Port
	iface framework.Interface
	told  []framework.Settings
	tx    []int
	takes func(framework.Settings) error // nil: anything
}

func (p *fakePort) Needs() framework.PortNeeds {
	return framework.PortNeeds{Name: "fake", Accepts: framework.AllFeatures}
}

func (p *fakePort) SettingsChanged() error {
	p.told = append(p.told, p.iface.Settings())
	p.tx = append(p.tx, p.iface.Queues())
	if p.takes != nil {
		return p.takes(p.iface.Settings())
	}
	return nil
}

func changeable(t *testing.T, name string) (*netInterface, *fakeControl, *fakePort) {
	t.Helper()
	c := config.Interface{
		Name: name, Driver: "vmxnet3", MTU: 1500, RxQueues: 2, TxQueues: 2, Interrupts: config.AutoInterrupts,
		Origin: config.Origin{File: "n.hcl", Line: 1, What: "interface " + name},
		Port:   config.Port{Netstack: &config.NetstackPort{Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}}},
	}
	i := newInterface(c, config.Driver{Name: "vmxnet3"}, zerolog.Nop())
	i.driver = &driver{name: "vmxnet3"}
	i.info = testInfo()
	i.info.Features, i.info.MaxTxQueues = framework.AllFeatures, 8
	options := link.Options{Queues: 4, RxBuffers: 8, TxBuffers: 8, OwnBuffers: 1}
	layout, err := options.Layout()
	if err != nil {
		t.Fatal(err)
	}
	if i.memory, err = bus.NewMemory("test", layout.Size()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { i.memory.Close() })
	if i.host, err = link.NewHost(link.HostOptions{Name: name, Memory: i.memory, Layout: options}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { i.host.Close() })
	control, port := &fakeControl{}, &fakePort{iface: i.host}
	i.control, i.port = control, port
	if err := i.resolve(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := i.configure(i.portSettings(i.inForce()), i.plan.TxQueues); err != nil {
		t.Fatal(err)
	}
	control.plan = i.plan
	control.calls, port.told, port.tx = nil, nil, nil
	i.setState(running, "")
	return i, control, port
}

// TestPortMeetsBothSides: between two plans the port keeps to what both allow, and
// afterwards to the new one.
func TestPortMeetsBothSides(t *testing.T) {
	i, _, port := changeable(t, "a")
	d := &Daemon{interfaces: []*netInterface{i}}
	set := func(settings ...Assignment) {
		t.Helper()
		port.told, port.tx = nil, nil
		if _, err := d.Set(t.Context(), "a", settings, false); err != nil {
			t.Fatal(err)
		}
		if len(port.told) != 2 {
			t.Fatalf("told %d times", len(port.told))
		}
	}
	set(Assignment{"mtu", "9000"}, Assignment{"queues", "4"}, Assignment{"tso", "off"})
	if port.told[0].MTU != 1500 || port.told[1].MTU != 9000 || port.tx[0] != 2 || port.tx[1] != 4 || port.told[0].Features&framework.TSO4 != 0 {
		t.Errorf("up: %v %v", port.told, port.tx)
	}
	set(Assignment{"mtu", "1500"}, Assignment{"queues", "1"}, Assignment{"tso", "on"})
	if port.told[0].MTU != 1500 || port.told[1].MTU != 1500 || port.tx[0] != 1 || port.tx[1] != 1 ||
		port.told[0].Features&framework.TSO4 != 0 || port.told[1].Features&framework.TSO4 == 0 {
		t.Errorf("down: %v %v", port.told, port.tx)
	}
}

// TestFailedChange: when the device does not come up as wanted, everything is as
// it was: plan, quirks, reasons, wishes, and what the port was told.
func TestFailedChange(t *testing.T) {
	i, control, port := changeable(t, "a")
	d := &Daemon{interfaces: []*netInterface{i}}
	before, wished, quirks := i.inForce(), i.wish, maps.Clone(control.quirks)
	control.fail = framework.ErrDevice
	_, err := d.Set(t.Context(), "a", []Assignment{{"mtu", "9000"}, {"lro-owner", "hybrid"}}, false)
	if !errors.Is(err, framework.ErrDevice) || !strings.Contains(err.Error(), "interface a") {
		t.Errorf("error %v", err)
	}
	if !reflect.DeepEqual(i.inForce(), before) || !reflect.DeepEqual(i.wish, wished) {
		t.Error("something else is in force")
	}
	if !maps.Equal(control.quirks, quirks) {
		t.Error("the driver was left with other quirks")
	}
	if last := port.told[len(port.told)-1]; last.MTU != 1500 {
		t.Errorf("the port was left with %+v", last)
	}
}

// TestPortDoesNotFollow: a change that the port can't take part in is refused, and
// everything is as it was, whether the port says so before the device is touched (a
// smaller MTU) or after (a larger one).
func TestPortDoesNotFollow(t *testing.T) {
	for _, c := range []struct {
		mtu     string
		touched bool
	}{{"1000", false}, {"9000", true}} {
		i, control, port := changeable(t, "a")
		d := &Daemon{interfaces: []*netInterface{i}}
		before, wished, plan, quirks := i.inForce(), i.wish, control.plan, maps.Clone(control.quirks)
		port.takes = func(s framework.Settings) error {
			if s.MTU != 1500 {
				return errors.New("nobody may do that here")
			}
			return nil
		}
		_, err := d.Set(t.Context(), "a", []Assignment{{"mtu", c.mtu}, {"queues", "1"}, {"lro-owner", "hybrid"}}, false)
		if want := "interface a: the port does not follow: nobody may do that here"; err == nil || err.Error() != want {
			t.Errorf("mtu %s: error %v, want %s", c.mtu, err, want)
		}
		if !reflect.DeepEqual(i.inForce(), before) || !reflect.DeepEqual(i.wish, wished) {
			t.Errorf("mtu %s: something else is in force", c.mtu)
		}
		if !reflect.DeepEqual(control.plan, plan) || !maps.Equal(control.quirks, quirks) || control.calls != nil != c.touched {
			t.Errorf("mtu %s: the driver was asked to %v and has %+v", c.mtu, control.calls, control.plan)
		}
		if last := port.told[len(port.told)-1]; last.MTU != 1500 || port.tx[len(port.tx)-1] != 2 {
			t.Errorf("mtu %s: the port was left with %+v and %v queues", c.mtu, last, port.tx)
		}
	}
}

// TestNothingIsTouchedBeforehand: a change that is refused, and one that is only
// asked about, reach neither the driver nor the port.
func TestNothingIsTouchedBeforehand(t *testing.T) {
	i, control, port := changeable(t, "a")
	d := &Daemon{interfaces: []*netInterface{i}}
	before := i.inForce()
	for _, c := range []struct {
		setting Assignment
		dry     bool
		says    string
	}{
		{Assignment{"mtu", "9000"}, true, ""},
		{Assignment{"mtu", "9001"}, false, "takes 60 to 9000"},
		{Assignment{"mtu", "666"}, false, "does not like that"},
		{Assignment{"queues", "5"}, false, "has buffers for 4"},
		{Assignment{"metadata-on", "first"}, false, "unsafe = true"},
	} {
		_, err := d.Set(t.Context(), "a", []Assignment{{"lro", "off"}, c.setting}, c.dry)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v", c.setting, err)
		}
	}
	if control.calls != nil || port.told != nil || !reflect.DeepEqual(i.inForce(), before) {
		t.Errorf("the driver was asked to %v, the port was told %v", control.calls, port.told)
	}
	i.setState(failed, "it died")
	if _, err := d.Set(t.Context(), "a", []Assignment{{"lro", "off"}}, false); err == nil || !strings.Contains(err.Error(), "failed (it died)") {
		t.Errorf("of an interface that does not run: %v", err)
	}
}

// TestRestartForAQuirk: a quirk that is read at start takes a reset, one that is
// live does not.
func TestRestartForAQuirk(t *testing.T) {
	i, _, _ := changeable(t, "a")
	i.unsafe = true
	d := &Daemon{interfaces: []*netInterface{i}}
	for setting, want := range map[Assignment]string{
		{"bell-delay", "5"}: "live", {"skips-rx-slots", "true"}: "reset", {"metadata-on", "first"}: "reset", {"lro", "off"}: "live",
	} {
		r, err := d.Set(t.Context(), "a", []Assignment{setting}, true)
		if err != nil || r.Effect != want {
			t.Errorf("%v: %v %v, want %s", setting, r, err, want)
		}
	}
}

// TestReloadIsAllOrNothing: when the second interface does not follow, the first
// is back where it was.
func TestReloadIsAllOrNothing(t *testing.T) {
	a, _, _ := changeable(t, "a")
	b, control, _ := changeable(t, "b")
	was := &config.Config{Interfaces: []config.Interface{a.config, b.config}, Drivers: []config.Driver{{Name: "vmxnet3"}}}
	next := &config.Config{Interfaces: []config.Interface{a.config, b.config}, Drivers: was.Drivers}
	next.Interfaces[0].MTU, next.Interfaces[1].MTU = 9000, 9000
	d := &Daemon{interfaces: []*netInterface{a, b}, config: was}
	d.options.Reload = func() (*config.Config, error) { return next, nil }
	before, wished := a.inForce(), a.wish

	control.fail = framework.ErrDevice
	if _, err := d.Reload(t.Context(), false); !errors.Is(err, framework.ErrDevice) || !strings.Contains(err.Error(), "interface b") {
		t.Errorf("error %v", err)
	}
	if !reflect.DeepEqual(a.inForce(), before) || !reflect.DeepEqual(a.wish, wished) || d.config != was {
		t.Error("the first interface runs by the new config")
	}

	control.fail = nil
	r, err := d.Reload(t.Context(), true)
	if err != nil || r.Applied || len(r.Interfaces) != 2 || a.inForce().plan.MTU != 1500 {
		t.Errorf("dry: %v %v", r, err)
	}
	r, err = d.Reload(t.Context(), false)
	if err != nil || !r.Applied || a.inForce().plan.MTU != 9000 || b.inForce().plan.MTU != 9000 || d.config != next {
		t.Errorf("%v %v", r, err)
	}
}

// TestReloadBesideAFailure: an interface that has failed keeps the others from following
// only if there is something new about it; where it stands in the file is not.
func TestReloadBesideAFailure(t *testing.T) {
	a, _, _ := changeable(t, "a")
	b, _, _ := changeable(t, "b")
	quirks := func(origin string) []framework.QuirkSetting {
		return []framework.QuirkSetting{{Name: "bell-delay", Value: "5", Origin: origin}}
	}
	lro := func(origin string) []framework.FeatureSetting {
		return []framework.FeatureSetting{{Features: framework.LRO, Origin: origin}}
	}
	a.config.Quirks, a.config.Features = quirks("n.hcl:3"), lro("n.hcl:4")
	was := &config.Config{Interfaces: []config.Interface{a.config, b.config}, Drivers: []config.Driver{{Name: "vmxnet3", Quirks: quirks("n.hcl:9")}}}
	next := &config.Config{Interfaces: []config.Interface{a.config, b.config}, Drivers: []config.Driver{{Name: "vmxnet3", Quirks: quirks("n.hcl:19")}}}
	moved := &next.Interfaces[0]
	moved.Origin.Line += 10
	moved.Quirks, moved.Features = quirks("n.hcl:13"), lro("n.hcl:14")
	next.Interfaces[1].MTU = 9000
	d := &Daemon{interfaces: []*netInterface{a, b}, config: was}
	d.options.Reload = func() (*config.Config, error) { return next, nil }
	a.setState(failed, "it died")
	r, err := d.Reload(t.Context(), false)
	if err != nil || len(r.Interfaces) != 1 || b.inForce().plan.MTU != 9000 || d.config != next {
		t.Errorf("%v, %v", r, err)
	}
	again := *next
	again.Interfaces = []config.Interface{next.Interfaces[0], was.Interfaces[1]}
	again.Interfaces[0].Quirks = nil
	next = &again
	if _, err := d.Reload(t.Context(), false); err == nil || !strings.Contains(err.Error(), "interface a: it is failed (it died)") || b.inForce().plan.MTU != 9000 {
		t.Errorf("something new about one that has failed: %v", err)
	}
}

// TestFixedDifferences: what takes a start is named, all of it.
func TestFixedDifferences(t *testing.T) {
	parse := func(edit ...string) *config.Config {
		c, err := config.Parse("n.hcl", []byte(strings.NewReplacer(edit...).Replace(config.DefaultSource())), Vocabulary([]string{"vmxnet3", "e1000"}))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	was := parse()
	if got := fixedDifferences(was, parse("lro = true", "lro = false", "rx_queues  = 4", "mtu = 9000", "# nicd's", "# our\n\n#")); got != nil {
		t.Errorf("what can follow: %v", got)
	}
	got := fixedDifferences(was, parse(
		`log_level = "info"`, `log_level = "warn"`, `flow_control = true`, `loss = 0.5`, `"10.0.0.1/24"`, `"10.0.0.3/24"`,
		`stream "em0-vmx0"`, `stream "other"`))
	want := "the daemon block; wire w0: it is different; interface vmx0 (driver, device, port, buffers): it is different; stream other: it is new; stream em0-vmx0: it is gone"
	if text := strings.Join(got, "; "); text != want {
		t.Errorf("got %s\nwant %s", text, want)
	}
}
