package drivertest

import (
	"runtime"
	"time"

	"nicd/framework"
	"nicd/framework/drivertest/rig"
)

var stopChecks = []*check{
	{name: "stop.quiet", run: stopQuiet,
		doc: "When Stop has returned the device neither writes to memory, nor sends, nor interrupts."},
	{name: "stop.twice", run: stopTwice,
		doc: "Stop of a stopped device succeeds and does nothing."},
	{name: "stop.loaded", run: stopLoaded,
		doc: "Stop succeeds with both rings full and frames under way; nothing of them comes after the next Start."},
	{name: "stop.interrupts", run: stopInterrupts,
		doc: "Stop succeeds while every vector is being served by another goroutine."},
	{name: "restart.thousand", run: restartThousand, deadline: 3 * time.Minute,
		doc: "A thousand starts and stops, with traffic under way at times, leave a device that works and no goroutine."},
	{name: "restart.filters-and-settings", run: restartSettings,
		doc: "A start has the settings that it is given, whatever was in force before."},
}

func stopQuiet(t *c) {
	n := t.net(on{})
	n.RoundTrip()
	for range 8 {
		n.Put(0, out(1, 100), 200, framework.Packet{Flags: framework.Completion})
	}
	n.Queues.Tx[0].Bell()
	n.Stop()
	forget(n)
	t.quiet(n)
	t.nothing(n, "after Stop")
	n.Start()
	n.WaitLink(true)
	n.RoundTrip()
}

func stopTwice(t *c) {
	n := t.net(on{Options: rig.Options{Stopped: true}})
	n.Stop() // was never started
	n.Start()
	n.WaitLink(true)
	n.RoundTrip()
	n.Stop()
	n.Stop()
	n.Start()
	n.WaitLink(true)
	n.RoundTrip()
}

func stopLoaded(t *c) {
	n := t.net(on{Setup: Setup{NoFlowControl: t.can(Drops)}, Options: rig.Options{Config: oneQueue}})
	for range 5 {
		for n.Put(0, out(99, 200), 60, framework.Packet{Flags: framework.Completion}) {
		}
		n.Queues.Tx[0].Bell()
		for i := range n.Config.RxDescriptors / 2 {
			n.Inject(in(i, 64))
		}
		n.Stop()
		drain(n)
		n.Start()
		n.WaitLink(true)
		if n.Queues.Tx[0].Pending() || n.Queues.Tx[0].Completed(64) != 0 {
			t.Error("a queue that was just started says that packets are finished")
		}
		t.flushLate(n)
		n.RoundTrip()
	}
}

func stopInterrupts(t *c) {
	n := t.net(on{})
	for range t.turns(40) {
		stop := n.Serve()
		n.RoundTrip()
		err := n.Device.Stop(n.Context)
		stop()
		t.must(err)
		n.Stop()
		n.Start()
		n.WaitLink(true)
	}
}

func restartThousand(t *c) {
	n := t.net(on{Setup: Setup{NoFlowControl: t.can(Drops)}})
	routines := runtime.NumGoroutine()
	frame := out(3, 100)
	for i := range t.turns(1000) {
		if i%3 == 0 {
			n.Inject(in(i, 60))
			n.Put(0, frame, 60, framework.Packet{Flags: framework.Completion})
			n.Queues.Tx[0].Bell()
		}
		if i%7 == 0 {
			for q := range n.Queues.Rx {
				n.Poll(q)
			}
		}
		n.Stop()
		n.Start()
	}
	n.WaitLink(true)
	t.flushLate(n)
	drain(n)
	n.RoundTrip()
	if now := runtime.NumGoroutine(); now > routines+10 {
		t.Errorf("%d goroutines at first, %d at the end", routines, now)
	}
}

func restartSettings(t *c) {
	n := t.net(on{})
	other := framework.MAC{2, 0xAB, 0xCD, 0, 0, 9}
	n.SetFilters(framework.Filters{Promiscuous: true})
	n.Stop()
	n.Config.Filters = framework.Filters{}
	n.Config.MAC = other
	n.Config.MTU = min(n.Info.MaxMTU, 4000)
	n.Start()
	n.WaitLink(true)
	t.accepts(n, map[framework.MAC]bool{other: true, rig.MAC: false, stranger: false, broadcast: true})
	big := rig.Frame{To: other, Payload: n.Config.MTU - 40}.Build()
	n.Inject(big)
	t.same(n.Receive(1)[0], big)
	n.Stop()
	n.Config.MAC, n.Config.MTU = rig.MAC, 1500
	n.Start()
	n.WaitLink(true)
	t.accepts(n, map[framework.MAC]bool{rig.MAC: true, other: false, broadcast: true})
	n.RoundTrip()
}
