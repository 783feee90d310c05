package daemon

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"nicd/config"
	"nicd/proto/adminpb"
)

// nicSettings is what an interface of the stress is to run by: the reference that what
// nicd shows is compared with.
type nicSettings struct {
	mtu, rx, tx, budget int
	spin, handoff       string
	promisc             bool
	off                 map[string]bool // features that somebody turned off
}

func (s nicSettings) String() string {
	return fmt.Sprintf("mtu %d, queues %d and %d, budget %d, spin %s, %s, promiscuous %v", s.mtu, s.rx, s.tx, s.budget, s.spin, s.handoff, s.promisc)
}

// text is the settings in a config's words, the same for the same settings.
func (s nicSettings) text() string {
	features := ""
	for _, name := range slices.Sorted(maps.Keys(s.off)) {
		features += "\n    " + name + " = false"
	}
	return fmt.Sprintf("mtu = %d\n  rx_queues = %d\n  tx_queues = %d\n  rx_budget = %d\n  spin = %q\n  tx_handoff = %q\n  promiscuous = %v\n  features {%s\n  }",
		s.mtu, s.rx, s.tx, s.budget, s.spin, s.handoff, s.promisc, features)
}

// shown is what nicd says of an interface in the reference's words.
func shown(d *adminpb.InterfaceDetail) nicSettings {
	s := nicSettings{
		mtu: int(d.Interface.Mtu), budget: int(d.RxBudget), spin: d.Spin, handoff: d.TxHandoff, promisc: d.Promiscuous, off: map[string]bool{},
	}
	for _, q := range d.Queues {
		switch q.Kind {
		case "rx":
			s.rx++
		case "tx":
			s.tx++
		}
	}
	for _, f := range d.Features {
		if f.State == "off" {
			s.off[f.Name] = true
		}
	}
	return s
}

// all is everything that a change can change, for telling that nothing has.
func all(d *adminpb.InterfaceDetail) string {
	text := shown(d).String() + " " + d.Interface.LroOwner + " " + d.Interface.Mac + " " + d.Interrupts
	for _, f := range d.Features {
		text += " " + f.Name + "=" + f.State
	}
	for _, q := range d.Quirks {
		text += " " + q.Name + "=" + q.Value
	}
	return text
}

// stress is a daemon under operators who all want something at once.
type stress struct {
	t      *testing.T
	daemon *Daemon
	socket string
	mode   string
	pairs  int
	ended  chan struct{}
	beside sync.WaitGroup // who asks without changing anything

	// quiet is held shared by who changes an interface, and alone by who changes or
	// looks at all. An interface's settings belong to its pair's setter.
	quiet    sync.RWMutex
	settings map[string]*nicSettings
	written  map[string]*nicSettings // as the config has them
	dead     map[string]bool
	config   atomic.Pointer[config.Config]
	done     map[string]*atomic.Int64 // by what was done
}

var stressed = []string{"set", "reload", "reload refused", "capture", "asked"}

func startStress(t *testing.T, mode string, pairs int) *stress {
	s := &stress{t: t, mode: mode, pairs: pairs, ended: make(chan struct{}), settings: map[string]*nicSettings{}, written: map[string]*nicSettings{}, dead: map[string]bool{}, done: map[string]*atomic.Int64{}}
	for _, what := range stressed {
		s.done[what] = &atomic.Int64{}
	}
	for n := range pairs {
		for _, name := range pairNames(n) {
			s.settings[name] = &nicSettings{mtu: 1500, rx: 2, tx: 2, budget: 64, spin: "0s", handoff: "abdicate", off: map[string]bool{}}
		}
	}
	s.config.Store(s.write())
	s.socket = filepath.Join(t.TempDir(), "s")
	var err error
	s.daemon, err = Start(t.Context(), Options{
		Config: s.config.Load(), Bundled: testDrivers, Socket: s.socket, Log: zerolog.Nop(),
		Reload: func() (*config.Config, error) { return s.config.Load(), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.daemon.Stop)
	return s
}

func pairNames(n int) [2]string { return [2]string{fmt.Sprint("a", n), fmt.Sprint("b", n)} }

func streamNames(n int) []string { return []string{fmt.Sprint("ab", n), fmt.Sprint("ba", n)} }

// write makes a config of the settings. What it says of an interface whose driver is dead
// is what it said before: that nicd could not do.
func (s *stress) write() *config.Config {
	text := fmt.Sprintf("driver \"vmxnet3\" { mode = %q }\ndriver \"e1000\" { mode = %q }\n", s.mode, s.mode)
	for n := range s.pairs {
		pair := pairText(n, "vmxnet3")
		for _, name := range pairNames(n) {
			if !s.dead[name] {
				now := *s.settings[name]
				now.off = maps.Clone(now.off)
				s.written[name] = &now
			}
			head := fmt.Sprintf("interface %q {\n", name)
			pair = strings.Replace(pair, head, head+"  "+s.written[name].text()+"\n", 1)
		}
		text += pair
	}
	c, err := config.Parse("stress.hcl", []byte(text), Vocabulary([]string{"vmxnet3", "e1000"}))
	if err != nil {
		s.t.Error(err)
	}
	return c
}

// client is a client of its own, as each operator's command is one.
func (s *stress) client() (adminpb.AdminClient, func()) {
	conn, err := grpc.NewClient("unix:"+s.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		s.t.Error(err)
	}
	return adminpb.NewAdminClient(conn), func() { conn.Close() }
}

func (s *stress) show(c adminpb.AdminClient, name string) *adminpb.InterfaceDetail {
	d, err := c.ShowInterface(context.Background(), &adminpb.InterfaceRequest{Name: name})
	if err != nil {
		s.t.Errorf("show %s: %v", name, err)
		return &adminpb.InterfaceDetail{Interface: &adminpb.Interface{}}
	}
	return d
}

// agrees compares what nicd shows of an interface with the reference.
func (s *stress) agrees(c adminpb.AdminClient, name, after string) {
	got, want := shown(s.show(c, name)), s.settings[name]
	if got.String() != want.String() {
		s.t.Errorf("%s after %s: it shows %v, set was %v", name, after, got, want)
	}
	for f := range want.off {
		if !got.off[f] {
			s.t.Errorf("%s after %s: %s is on, off was set", name, after, f)
		}
	}
}

// draw is settings at random.
func (s *stress) draw(r *rand.Rand, name string, mtu int) *nicSettings {
	most := 4
	if name[0] == 'b' {
		most = 2
	}
	d := &nicSettings{
		mtu: mtu, rx: 1 + r.IntN(most), tx: 1 + r.IntN(most), budget: []int{16, 64, 200}[r.IntN(3)],
		spin: []string{"0s", "20µs", "1ms"}[r.IntN(3)], handoff: "abdicate", promisc: r.IntN(2) == 0, off: map[string]bool{},
	}
	if s.mode == "in-process" && r.IntN(2) == 0 {
		d.handoff = "inline"
	}
	for _, f := range []string{"lro", "vlan-strip", "rx-csum"} {
		if r.IntN(4) == 0 {
			d.off[f] = true
		}
	}
	return d
}

// set has a pair's interfaces changed by `nicd set`.
func (s *stress) set(c adminpb.AdminClient, r *rand.Rand, pair int) {
	s.quiet.RLock()
	defer s.quiet.RUnlock()
	names := pairNames(pair)
	if r.IntN(4) == 0 { // one MTU on a wire
		mtu := []int{1500, 4000, 9000}[r.IntN(3)]
		for _, name := range names {
			s.apply(c, name, func(n *nicSettings) { n.mtu = mtu }, "mtu", fmt.Sprint(mtu))
		}
		return
	}
	name := names[r.IntN(2)]
	next := s.draw(r, name, 0)
	switch r.IntN(8) {
	case 0:
		s.apply(c, name, func(n *nicSettings) { n.rx, n.tx = next.rx, next.rx }, "queues", fmt.Sprint(next.rx))
	case 1:
		s.apply(c, name, func(n *nicSettings) { n.tx, n.promisc = next.tx, next.promisc }, "tx-queues", fmt.Sprint(next.tx), "promisc", onOffText(next.promisc))
	case 2:
		s.apply(c, name, func(n *nicSettings) { n.budget, n.spin = next.budget, next.spin }, "rx-budget", fmt.Sprint(next.budget), "spin", next.spin)
	case 3:
		s.apply(c, name, func(n *nicSettings) { n.handoff = next.handoff }, "tx-handoff", next.handoff)
	case 4, 5:
		s.feature(c, name, []string{"lro", "tso4", "tso6", "tx-csum", "rx-csum", "vlan-strip"}[r.IntN(6)], []string{"on", "off", "software"}[r.IntN(3)])
	default:
		bad := [][]string{{"mtu", "9001"}, {"queues", "64"}, {"mtu", "1600", "lro-owner", "nobody"}, {"rx-budget", "8", "nonsense", "on"}, {"spin", "-1s"}}[r.IntN(5)]
		s.refused(c, name, bad...)
	}
}

func settingsOf(words []string) (list []*adminpb.Setting) {
	for n := 0; n < len(words); n += 2 {
		list = append(list, &adminpb.Setting{Name: words[n], Value: words[n+1]})
	}
	return list
}

// apply makes a change that has to succeed, unless the interface's driver is dead.
func (s *stress) apply(c adminpb.AdminClient, name string, change func(*nicSettings), words ...string) {
	if s.dead[name] {
		s.refused(c, name, words...)
		return
	}
	request := &adminpb.SetInterfaceRequest{Name: name, Settings: settingsOf(words), DryRun: true}
	what := strings.Join(words, " ")
	before := all(s.show(c, name))
	if _, err := c.SetInterface(context.Background(), request); err != nil {
		s.t.Errorf("%s: %s, asked only: %v", name, what, err)
	}
	if after := all(s.show(c, name)); after != before {
		s.t.Errorf("%s: %s was asked only; it was %s and is %s", name, what, before, after)
	}
	request.DryRun = false
	if _, err := c.SetInterface(context.Background(), request); err != nil {
		s.t.Errorf("%s: %s: %v", name, what, err)
		return
	}
	s.done["set"].Add(1)
	change(s.settings[name])
	s.agrees(c, name, what)
}

// feature turns a feature on or off. It may be refused, for what it needs may be off;
// then nothing is changed.
func (s *stress) feature(c adminpb.AdminClient, name, feature, value string) {
	if s.dead[name] {
		s.refused(c, name, feature, value)
		return
	}
	before := all(s.show(c, name))
	_, err := c.SetInterface(context.Background(), &adminpb.SetInterfaceRequest{Name: name, Settings: settingsOf([]string{feature, value})})
	is := s.show(c, name)
	if err != nil {
		if after := all(is); after != before {
			s.t.Errorf("%s: %s=%s was refused (%v); it was %s and is %s", name, feature, value, err, before, after)
		}
		return
	}
	s.done["set"].Add(1)
	n := slices.IndexFunc(is.Features, func(f *adminpb.Feature) bool { return f.Name == feature })
	if n < 0 {
		s.t.Errorf("%s has no feature %s", name, feature)
		return
	}
	if state := is.Features[n].State; (state == "off") != (value == "off") || value == "software" && state != value {
		s.t.Errorf("%s: %s=%s was done; it is %s", name, feature, value, state)
	}
	delete(s.settings[name].off, feature)
	if value == "off" {
		s.settings[name].off[feature] = true
	}
	s.agrees(c, name, feature+"="+value)
}

// refused asks for what must be refused, and change nothing.
func (s *stress) refused(c adminpb.AdminClient, name string, words ...string) {
	before := all(s.show(c, name))
	if _, err := c.SetInterface(context.Background(), &adminpb.SetInterfaceRequest{Name: name, Settings: settingsOf(words)}); err == nil {
		s.t.Errorf("%s: %v was not refused", name, words)
	}
	if after := all(s.show(c, name)); after != before {
		s.t.Errorf("%s: %v was refused; it was %s and is %s", name, words, before, after)
	}
}

// reload has nicd follow another config.
func (s *stress) reload(c adminpb.AdminClient, r *rand.Rand) {
	s.quiet.Lock()
	defer s.quiet.Unlock()
	for n := range s.pairs {
		mtu := []int{1500, 4000, 9000}[r.IntN(3)]
		for _, name := range pairNames(n) {
			if !s.dead[name] {
				s.settings[name] = s.draw(r, name, mtu)
			}
		}
	}
	s.config.Store(s.write())
	if _, err := c.Reload(context.Background(), &adminpb.ReloadRequest{}); err != nil {
		s.t.Errorf("reload: %v", err)
		return
	}
	s.done["reload"].Add(1)
	for name := range s.settings {
		if !s.dead[name] {
			s.agrees(c, name, "reload")
		}
	}
}

// refuseReload has nicd refuse a config that takes a new start.
func (s *stress) refuseReload(c adminpb.AdminClient) {
	s.quiet.Lock()
	defer s.quiet.Unlock()
	was, before := s.config.Load(), map[string]string{}
	for name := range s.settings {
		before[name] = all(s.show(c, name))
	}
	next := *was
	next.Interfaces = slices.Clone(was.Interfaces)
	for n := range next.Interfaces {
		next.Interfaces[n].MTU = 2000
	}
	last := &next.Interfaces[len(next.Interfaces)-1]
	last.BufferSize += 4096
	s.config.Store(&next)
	if _, err := c.Reload(context.Background(), &adminpb.ReloadRequest{}); err == nil {
		s.t.Error("a reload with buffers of another size was not refused")
	}
	s.config.Store(was)
	s.done["reload refused"].Add(1)
	for name := range s.settings {
		if after := all(s.show(c, name)); after != before[name] {
			s.t.Errorf("%s: a reload was refused; it was %s and is %s", name, before[name], after)
		}
	}
}

// calm sees to it that all moves and adds up while nobody changes anything.
func (s *stress) calm() {
	s.quiet.Lock()
	defer s.quiet.Unlock()
	for n := range s.pairs {
		if names := pairNames(n); !s.dead[names[0]] && !s.dead[names[1]] {
			awaitData(s.t, s.daemon, 256<<10, streamNames(n)...)
		}
	}
	for _, problem := range s.daemon.Audit() {
		if !slices.ContainsFunc(s.deaths(), func(prefix string) bool { return strings.HasPrefix(problem, prefix) }) {
			s.t.Error(problem)
		}
	}
}

// deaths are what the audit may say because drivers are dead.
func (s *stress) deaths() (prefixes []string) {
	for name := range s.dead {
		prefixes = append(prefixes, "interface "+name+": failed: ")
	}
	return prefixes
}

// kill kills an interface's driver, which has a process of its own.
func (s *stress) kill(name string) {
	s.quiet.Lock()
	defer s.quiet.Unlock()
	victim := s.daemon.find(name)
	if err := syscall.Kill(victim.process.PID(), syscall.SIGKILL); err != nil {
		s.t.Fatal(err)
	}
	s.dead[name] = true
	until(s.t, name+"'s death noticed", 20*time.Second, func() bool { return victim.is(failed) })
}

// again does something with a client until the stress ends.
func (s *stress) again(r *rand.Rand, do func(adminpb.AdminClient, *rand.Rand)) {
	r = rand.New(rand.NewPCG(r.Uint64(), 0))
	s.beside.Go(func() {
		c, hangUp := s.client()
		defer hangUp()
		for {
			select {
			case <-s.ended:
				return
			default:
				do(c, r)
			}
		}
	})
}

// capture captures and hangs up after some messages, or before the first.
func (s *stress) capture(_ adminpb.AdminClient, r *rand.Rand) {
	c, hangUp := s.client()
	defer hangUp()
	defer s.done["capture"].Add(1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	name := s.any(r)
	request := &adminpb.CaptureRequest{Interface: name, SnapLen: uint32(r.IntN(200)), Points: [][]string{nil, {"rx-wire", "tx-wire"}, {"tx-port"}}[r.IntN(3)]}
	stream, err := c.Capture(ctx, request)
	if err != nil {
		s.t.Errorf("capture %s: %v", name, err)
		return
	}
	for range r.IntN(4) {
		received := make(chan error, 1)
		go func() { _, err := stream.Recv(); received <- err }()
		select {
		case err := <-received:
			if err != nil {
				s.t.Errorf("capture %s: %v", name, err)
			}
		case <-s.ended: // of a dead interface nothing comes
			return
		case <-time.After(50 * time.Millisecond):
			return
		}
	}
}

// any is an interface's name. The map's keys stay as they are.
func (s *stress) any(r *rand.Rand) string { return pairNames(r.IntN(s.pairs))[r.IntN(2)] }

// ask asks what can be asked.
func (s *stress) ask(c adminpb.AdminClient, r *rand.Rand) {
	ctx, name := context.Background(), s.any(r)
	var err error
	switch r.IntN(6) {
	case 0:
		_, err = c.Status(ctx, &adminpb.StatusRequest{})
	case 1:
		var reply *adminpb.StatsReply
		if reply, err = c.Stats(ctx, &adminpb.InterfaceRequest{Name: name}); err == nil && reply.Violation != "" {
			s.t.Errorf("%s: %s", name, reply.Violation)
		}
		if err != nil && s.mode != "in-process" {
			err = nil // the driver may have died in the middle of it
		}
	case 2:
		_, err = c.Explain(ctx, &adminpb.ExplainRequest{Interface: name, Feature: "lro"})
	case 3:
		_, err = c.ListDrivers(ctx, &adminpb.ListDriversRequest{})
	case 4:
		if _, used := c.UnloadDriver(ctx, &adminpb.UnloadDriverRequest{Name: "e1000"}); used == nil {
			s.t.Error("a driver that is in use was unloaded")
		}
	case 5:
		_, err = c.ListQuirks(ctx, &adminpb.ListQuirksRequest{Driver: "vmxnet3"})
	}
	if err != nil {
		s.t.Error(err)
	}
	s.done["asked"].Add(1)
}

// run has everybody at it for so many changes of each pair, and then looks.
func (s *stress) run(r *rand.Rand, changes int, halfWay func()) {
	s.again(r, s.capture)
	s.again(r, s.ask)
	s.again(r, s.ask)
	for _, half := range []func(){halfWay, func() {}} {
		var setters sync.WaitGroup
		for pair := range s.pairs {
			own := rand.New(rand.NewPCG(r.Uint64(), 0))
			setters.Go(func() {
				c, hangUp := s.client()
				defer hangUp()
				for n := 0; n < changes/2 && !s.t.Failed(); n++ {
					s.set(c, own, pair)
				}
			})
		}
		own := rand.New(rand.NewPCG(r.Uint64(), 0))
		setters.Go(func() {
			c, hangUp := s.client()
			defer hangUp()
			for n := 0; n < 1+changes/16 && !s.t.Failed(); n++ {
				s.reload(c, own)
				s.refuseReload(c)
			}
		})
		setters.Wait()
		half()
		s.calm()
	}
	close(s.ended)
	s.beside.Wait()
	for what, n := range s.done {
		if n.Load() == 0 {
			s.t.Errorf("nothing was done of %q", what)
		}
	}
	s.daemon.Stop()
}

// leavesNothing runs what has to leave goroutines and descriptors as they were.
func leavesNothing(t *testing.T, run func()) {
	t.Helper()
	goroutines, before := goleak.IgnoreCurrent(), openFiles(t)
	run()
	goleak.VerifyNone(t, goroutines)
	until(t, "descriptors closed", 20*time.Second, func() bool { return openFiles(t) <= before })
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestStress: whatever operators do at once, what nicd shows is what was set last, all
// counters add up, streams go on, and in the end nothing is left.
func TestStress(t *testing.T) {
	r := stressRandom(t)
	leavesNothing(t, func() {
		s := startStress(t, "in-process", 2)
		s.run(r, 16, func() {})
	})
}

// TestStressPlugins is the same with plugins, of which one is killed half-way: it fails,
// can't be changed, and keeps the others from nothing.
func TestStressPlugins(t *testing.T) {
	r := stressRandom(t)
	leavesNothing(t, func() {
		s := startStress(t, "plugin", 2)
		s.run(r, 6, func() { s.kill(s.any(r)) })
	})
}

func stressRandom(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	return rand.New(rand.NewPCG(seed, 0))
}
