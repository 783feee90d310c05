package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"nicd/config"
	"nicd/framework"
	"nicd/framework/engine"
	"nicd/framework/plugin"
	"nicd/proto/adminpb"
)

// This file changes how an interface runs while it does. What is wanted is
// worked out to the end first, then what it takes is asked of the driver, and
// only then something is touched.

// setOrigin is whose word a setting is that `nicd set` made.
const setOrigin = "nicd set"

// wish is what the operator wants of an interface: the config's blocks, with what
// was set since.
type wish struct {
	config config.Interface
	quirks []framework.QuirkSetting // the driver's block's
}

// outcome is what a wish comes to, for the device as it is.
type outcome struct {
	quirks   *framework.Resolution
	values   map[string]string // of the quirks, as the driver is told
	features *framework.FeaturePlan
	plan     engine.Plan
}

func (i *netInterface) quirkSources(w wish, facts framework.DeviceFacts) framework.QuirkSources {
	return framework.QuirkSources{
		Driver: i.driver.name, Declarations: i.driver.description.Quirks, Defines: i.driver.description.Knows,
		Facts: facts, DriverConfig: w.quirks, InterfaceConfig: w.config.Quirks, Unsafe: i.unsafe,
	}
}

// outcome works out what a wish comes to. It changes nothing.
func (i *netInterface) outcome(w wish) (o outcome, err error) {
	i.mu.Lock()
	info, link := i.info, i.link
	i.mu.Unlock()
	if err := w.config.CheckTxHandoff(i.driverCfg.Mode); err != nil {
		return o, fmt.Errorf("interface %s: %w", i.config.Name, err)
	}
	if o.quirks, err = framework.ResolveQuirks(i.quirkSources(w, i.facts(info, link))); err != nil {
		return o, fmt.Errorf("interface %s: %w", i.config.Name, err)
	}
	if o.values, err = i.driver.valuesOf(o.quirks); err != nil {
		return o, fmt.Errorf("interface %s: %w", i.config.Name, err)
	}
	needs := i.port.Needs()
	o.features = framework.ResolveFeatures(framework.FeatureSources{
		Wanted: slices.Concat(i.imposed, w.config.Features), Info: info, Link: link, Quirks: o.quirks, Port: needs,
	})
	if o.plan, err = makePlan(&w.config, &info, o.quirks, o.features); err != nil {
		return o, err
	}
	o.plan.Filters.Promiscuous = w.config.Promiscuous || needs.Promiscuous
	o.plan.Filters.AllMulticast = needs.AllMulticast
	return o, nil
}

// same tells whether two outcomes make an interface run in the same way. They may
// have other reasons.
func (o *outcome) same(p outcome) bool {
	return len(differences(*o, p)) == 0
}

// inForce is the outcome by which the interface runs.
func (i *netInterface) inForce() outcome {
	i.mu.Lock()
	defer i.mu.Unlock()
	return outcome{i.quirks, i.quirkValues, i.features, i.plan}
}

// enforce remembers o as the outcome in force.
func (i *netInterface) enforce(o outcome) {
	o.plan.Restart = false
	i.mu.Lock()
	defer i.mu.Unlock()
	i.quirks, i.quirkValues, i.features, i.plan = o.quirks, o.values, o.features, o.plan
}

// portSettings is what the port may count on, whoever does it.
func (i *netInterface) portSettings(o outcome) framework.Settings {
	s := o.plan.Settings
	s.Features = o.features.Usable
	return s
}

// configure tells the port what it may count on now. An error says what could not
// follow, at a Linux interface that is not nicd's to change, say.
func (i *netInterface) configure(s framework.Settings, txQueues int) error {
	i.host.Configure(s, txQueues)
	if f, ok := i.port.(framework.SettingsFollower); ok {
		if err := f.SettingsChanged(); err != nil {
			return fmt.Errorf("the port does not follow: %w", err)
		}
	}
	return nil
}

// meet tells the port to keep to what holds before and after a change, for the
// time in between: packets that it sends then fit both.
func (i *netInterface) meet(before, after outcome) error {
	s := i.portSettings(after)
	s.MTU = min(s.MTU, before.plan.MTU)
	s.Features &= before.features.Usable
	return i.configure(s, min(before.plan.TxQueues, after.plan.TxQueues))
}

// apply puts an outcome in force; on error the old one stays. What is begun is
// finished: an engine does not stop in the middle because whoever asked is gone, and
// what it did then would be unknown. The caller has changing.
func (i *netInterface) apply(ctx context.Context, after outcome) (framework.Effect, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), changePatience)
	defer cancel()
	before := i.inForce()
	effect, err := i.carryOut(ctx, before, after)
	if err != nil {
		if back := i.configure(i.portSettings(before), before.plan.TxQueues); back != nil {
			err = fmt.Errorf("%w; and now %w", err, back)
		}
		return effect, fmt.Errorf("interface %s: %w", i.config.Name, err)
	}
	i.enforce(after)
	return effect, nil
}

// carryOut changes what the port, the driver and the engine do. On error the port
// has to be told again what holds.
func (i *netInterface) carryOut(ctx context.Context, before, after outcome) (framework.Effect, error) {
	if err := i.meet(before, after); err != nil {
		return framework.Live, err
	}
	effect, err := i.put(ctx, before, after)
	if err != nil {
		return effect, err
	}
	if err := i.configure(i.portSettings(after), after.plan.TxQueues); err != nil {
		return effect, i.takeBack(ctx, before, after, err)
	}
	return effect, nil
}

// takeBack restores what was in force before a change that was made, and that the
// port does not follow. It has its own time, like putBack, and on the way the port
// keeps to what holds before and after, as far as it can.
func (i *netInterface) takeBack(ctx context.Context, before, after outcome, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), changePatience)
	defer cancel()
	_ = i.meet(after, before)
	before.plan.Restart = after.plan.Restart
	if _, back := i.put(ctx, after, before); back != nil {
		return fmt.Errorf("%w; and what was before could not be restored: %w", err, back)
	}
	return err
}

// put changes what the driver and the engine do.
func (i *netInterface) put(ctx context.Context, before, after outcome) (framework.Effect, error) {
	if err := i.control.SetQuirks(ctx, after.values); err != nil {
		return framework.Live, i.putBack(ctx, before, err)
	}
	effect, err := i.control.Change(ctx, after.plan)
	if err != nil {
		err = i.putBack(ctx, before, err)
	}
	return effect, err
}

// putBack restores what was in force before a change that failed with err: the
// quirks, and the plan if it is not known what came of the change. It has its own
// time, since the change's may be over.
func (i *netInterface) putBack(ctx context.Context, before outcome, err error) error {
	if errors.Is(err, plugin.ErrExited) {
		return err // there is nobody any more
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
	defer cancel()
	back := i.control.SetQuirks(ctx, before.values)
	if back == nil && unanswered(err) {
		_, back = i.control.Change(ctx, before.plan)
	}
	if back != nil {
		return fmt.Errorf("%w; and what was before could not be restored: %w", err, back)
	}
	return err
}

// unanswered tells whether a driver may have done what it was asked although there
// was an error.
func unanswered(err error) bool {
	return errors.Is(err, plugin.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// change is a change that was thought through and not made yet.
type change struct {
	of      *netInterface
	was     wish
	wish    wish
	before  outcome
	after   outcome
	effect  framework.Effect // of all together
	entries []difference
}

// prepare thinks a change through: what is different afterwards, and what that
// takes. It changes nothing. The caller has changing.
func (i *netInterface) prepare(ctx context.Context, w wish) (*change, error) {
	i.mu.Lock()
	state, reason := i.state, i.reason
	i.mu.Unlock()
	if state != running {
		if reason != "" {
			state += " (" + reason + ")"
		}
		return nil, fmt.Errorf("interface %s: it is %s: nothing can be changed", i.config.Name, state)
	}
	after, err := i.outcome(w)
	if err != nil {
		return nil, err
	}
	if n, most := max(after.plan.RxQueues, after.plan.TxQueues), i.host.Layout().Queues; n > most {
		return nil, fmt.Errorf("interface %s: %d queues: it has buffers for %d, laid out when it started; write the number into the config and start nicd again", i.config.Name, n, most)
	}
	c := &change{of: i, was: i.wish, wish: w, before: i.inForce(), after: after}
	c.entries = differences(c.before, after)
	c.after.plan.Restart = needRestart(c.entries)
	if c.effect, err = i.control.Effect(ctx, c.after.plan); err != nil {
		return nil, fmt.Errorf("interface %s: %w", i.config.Name, err)
	}
	for n := range c.entries {
		c.entries[n].effect = c.effectOf(ctx, &c.entries[n])
	}
	return c, nil
}

// effectOf asks what one of the differences would take by itself. If it can't be
// by itself, because it needs another, it takes what all of them do.
func (c *change) effectOf(ctx context.Context, d *difference) framework.Effect {
	p := c.before.plan
	d.part(&p, &c.after.plan)
	p.Restart = d.restart
	effect, err := c.of.control.Effect(ctx, p)
	if err != nil {
		return c.effect
	}
	return effect
}

func needRestart(entries []difference) bool {
	for _, d := range entries {
		if d.restart {
			return true
		}
	}
	return false
}

// commit makes the change.
func (c *change) commit(ctx context.Context) error {
	if len(c.entries) == 0 {
		c.of.enforce(c.after)
		c.of.wish = c.wish
		return nil
	}
	effect, err := c.of.apply(ctx, c.after)
	if err != nil {
		return err
	}
	c.of.wish = c.wish
	for _, d := range c.entries {
		c.of.log.Info().Str("what", d.what).Str("from", d.from).Str("to", d.to).Stringer("effect", effect).Msg("changed")
	}
	return nil
}

// undo takes a change back that was made.
func (c *change) undo(ctx context.Context) error {
	c.of.wish = c.was
	if len(c.entries) == 0 {
		c.of.enforce(c.before)
		return nil
	}
	before := c.before
	before.plan.Restart = c.after.plan.Restart
	_, err := c.of.apply(ctx, before)
	return err
}

// reply says what the change is.
func (c *change) reply(applied bool) *adminpb.ChangeReply {
	r := &adminpb.ChangeReply{Interface: c.of.config.Name, Effect: c.effect.String(), Applied: applied}
	for _, d := range c.entries {
		r.Changes = append(r.Changes, &adminpb.Change{What: d.what, From: d.from, To: d.to, Effect: d.effect.String(), Because: d.because})
	}
	return r
}

// difference is one thing that is different in how an interface runs.
type difference struct {
	what, from, to, because string
	restart                 bool
	part                    func(p, after *engine.Plan) // makes p differ in this and nothing else
	effect                  framework.Effect
}

// differences lists what is different between two outcomes.
func differences(before, after outcome) []difference {
	var list []difference
	add := func(what, from, to string, part func(p, after *engine.Plan)) {
		if from != to {
			list = append(list, difference{what: what, from: from, to: to, part: part})
		}
	}
	a, b := &before.plan, &after.plan
	add("mtu", strconv.Itoa(a.MTU), strconv.Itoa(b.MTU), func(p, after *engine.Plan) { p.MTU = after.MTU })
	add("mac", a.MAC.String(), b.MAC.String(), func(p, after *engine.Plan) { p.MAC = after.MAC })
	add("rx-queues", strconv.Itoa(a.RxQueues), strconv.Itoa(b.RxQueues), takeLayout)
	add("tx-queues", strconv.Itoa(a.TxQueues), strconv.Itoa(b.TxQueues), takeLayout)
	add("rx-descriptors", strconv.Itoa(a.RxDescriptors), strconv.Itoa(b.RxDescriptors), func(p, after *engine.Plan) { p.RxDescriptors = after.RxDescriptors })
	add("tx-descriptors", strconv.Itoa(a.TxDescriptors), strconv.Itoa(b.TxDescriptors), func(p, after *engine.Plan) { p.TxDescriptors = after.TxDescriptors })
	add("interrupts", vectorText(a), vectorText(b), takeLayout)
	add("rx-budget", budgetText(a), budgetText(b), func(p, after *engine.Plan) { p.RxBudget = after.RxBudget })
	add("spin", spinText(a), spinText(b), func(p, after *engine.Plan) { p.SpinMicros = after.SpinMicros })
	add("cpus", fmt.Sprint(a.CPUs), fmt.Sprint(b.CPUs), func(p, after *engine.Plan) { p.CPUs, p.SpinMicros, p.Restart = after.CPUs, after.SpinMicros, true })
	add("tx-handoff", handoffText(a), handoffText(b), func(p, after *engine.Plan) { p.InlineTx = after.InlineTx })
	add("promisc", onOffText(a.Filters.Promiscuous), onOffText(b.Filters.Promiscuous), func(p, after *engine.Plan) { p.Filters = after.Filters })
	for n := range list {
		list[n].restart = list[n].what == "cpus" // tasks are placed when they are made
	}
	return append(append(list, featureDifferences(before, after)...), quirkDifferences(before, after)...)
}

func takeLayout(p, after *engine.Plan) {
	p.RxQueues, p.TxQueues, p.RSS, p.Interrupts = after.RxQueues, after.TxQueues, after.RSS, after.Interrupts
}

func vectorText(p *engine.Plan) string {
	return describeInterrupts(p) + moderationText(p.Interrupts.Moderation) + sharedText(&p.Interrupts)
}

func moderationText(micros int) string {
	if micros == 0 {
		return ""
	}
	return ", at most one in " + (time.Duration(micros) * time.Microsecond).String()
}

// sharedText tells plans apart in which queues have none of their own.
func sharedText(v *framework.VectorPlan) string {
	for _, n := range v.TxVector {
		if n < 0 {
			return ", none for transmit"
		}
	}
	return ""
}

func budgetText(p *engine.Plan) string { return strconv.Itoa(budget(p)) }

func budget(p *engine.Plan) int {
	if p.RxBudget == 0 {
		return engine.DefaultRxBudget
	}
	return p.RxBudget
}

func spinText(p *engine.Plan) string {
	if p.SpinMicros < 0 {
		return "for ever"
	}
	return (time.Duration(p.SpinMicros) * time.Microsecond).String()
}

func handoffText(p *engine.Plan) string {
	if p.InlineTx {
		return string(config.Inline)
	}
	return string(config.Abdicate)
}

func onOffText(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// featureDifferences lists features that somebody else does afterwards, or
// nobody, with what decided. LRO is told by its owner.
func featureDifferences(before, after outcome) (list []difference) {
	framework.AllFeatures.Each(func(f framework.Features) {
		was, is := before.features.Of(f), after.features.Of(f)
		d := difference{
			what: f.String(), from: was.State.String(), to: is.State.String(),
			because: is.Reasons[len(is.Reasons)-1],
			part: func(p, after *engine.Plan) {
				p.Features = p.Features&^f | after.Features&f
			},
		}
		if f == framework.LRO {
			d.from, d.to = lroText(before.plan.LRO), lroText(after.plan.LRO)
			d.part = func(p, after *engine.Plan) {
				p.Features, p.LRO = p.Features&^f|after.Features&f, after.LRO
			}
		}
		if d.from != d.to {
			list = append(list, d)
		}
	})
	return list
}

func lroText(o framework.LROOwner) string {
	if o == framework.LRONone {
		return "off"
	}
	return o.String()
}

// quirkDifferences lists quirks with other values. Who merges is a matter of the
// feature already.
func quirkDifferences(before, after outcome) (list []difference) {
	for _, name := range after.quirks.Changed(before.quirks) {
		is, _ := after.quirks.Lookup(name)
		was, _ := before.quirks.Lookup(name)
		list = append(list, difference{
			what: name, from: was.Value, to: is.Value, because: is.Because, restart: !is.Info.Live,
			part: func(*engine.Plan, *engine.Plan) {},
		})
	}
	return list
}

// Assignment is a setting by name and its value: "mtu" and "9000".
type Assignment struct{ Name, Value string }

func (a Assignment) String() string { return a.Name + "=" + a.Value }

// Set changes settings of an interface, all of them or, with an error, none. With
// dry it only says what would be changed and what that takes. Changes of an
// interface come one after another; any goroutine may ask for one.
func (d *Daemon) Set(ctx context.Context, name string, settings []Assignment, dry bool) (*adminpb.ChangeReply, error) {
	i := d.find(name)
	if i == nil {
		return nil, d.unknown(name)
	}
	if len(settings) == 0 {
		return nil, fmt.Errorf("nothing to set; settings are %s, and quirks", strings.Join(config.SettingNames(), ", "))
	}
	i.changing.Lock()
	defer i.changing.Unlock()
	w := i.wish
	w.config.Origin = config.Origin{What: "interface " + name} // what is refused stands in no file
	for _, a := range settings {
		if err := w.config.Set(a.Name, a.Value, setOrigin); err != nil {
			return nil, fmt.Errorf("interface %s: %w", name, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, changePatience)
	defer cancel()
	c, err := i.prepare(ctx, w)
	if err != nil {
		return nil, err
	}
	if err := fulfils(c, settings); err != nil {
		return nil, fmt.Errorf("interface %s: %w", name, err)
	}
	if dry {
		return c.reply(false), nil
	}
	if err := c.commit(ctx); err != nil {
		return nil, err
	}
	return c.reply(true), nil
}

// fulfils checks that what was asked for comes about. Features that a config
// leaves to circumstances may end up off with a reason; one that somebody asks
// for now may not.
func fulfils(c *change, settings []Assignment) error {
	for _, a := range settings {
		asked, ok := framework.ParseFeature(strings.ReplaceAll(a.Name, "_", "-"))
		if !ok || a.Value == "off" {
			continue
		}
		var err error
		asked.Each(func(f framework.Features) {
			if s := c.after.features.Of(f); s.State == framework.FeatureOff && err == nil {
				err = fmt.Errorf("%s: %s would be off: %s", a, f, strings.Join(s.Reasons, "; "))
			}
		})
		if err != nil {
			return err
		}
		if owner := c.after.plan.LRO; asked == framework.LRO && a.Value == "hybrid" && owner != framework.LROHybrid {
			s := c.after.features.Of(framework.LRO)
			return fmt.Errorf("%s: the owner would be %s: %s", a, owner, strings.Join(s.Reasons, "; "))
		}
	}
	return nil
}

// unknown says that there is no interface of that name.
func (d *Daemon) unknown(name string) error {
	var names []string
	for _, i := range d.interfaces {
		names = append(names, i.config.Name)
	}
	return fmt.Errorf("there is no interface %q; there are %s", name, strings.Join(names, ", "))
}
