package drivertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"nicd/framework/drivertest/rig"
)

// ErrNoFarEnd: no frame gets from the device to the far end and back.
var ErrNoFarEnd = errors.New("no far end")

// How long TryFarEnd waits for the first frames, and for a link to go down.
const (
	farEndPatience = 30 * time.Second
	linkPatience   = 5 * time.Second
)

// TryFarEnd runs the driver once, to see whether what a bench takes for the far end
// of its device is that: a frame goes each way. An error, which is ErrNoFarEnd,
// says what did not. If the station has SetLink, linked says whether the device's
// link went down with it.
//
// It is for benches whose wire is not theirs, before the first check: a wrong cable
// would be more than a hundred failed checks.
func TryFarEnd(ctx context.Context, b Bench) (linked bool, err error) {
	if b.Patience == 0 {
		b.Patience = farEndPatience
	}
	res := runCheck(ctx, &b, &check{name: "bench.far-end", run: func(t *c) {
		n := t.net(on{})
		n.RoundTrip()
		if n.SetLink != nil {
			linked = followsLink(t, n)
		}
	}}, newLinter(&b))
	if res.Status != Passed {
		return false, fmt.Errorf("%w: %s%s", ErrNoFarEnd, res.Reason, strings.Join(res.Problems, "; "))
	}
	return linked, nil
}

// followsLink tells whether the device's link goes down when the far end says so.
// Afterwards it is up.
func followsLink(t *c, n *rig.Net) (down bool) {
	n.SetLink(false)
	begin := time.Now()
	n.Until("link", func() bool {
		l, err := n.Device.Link()
		t.must(err)
		down = !l.Up
		return down || time.Since(begin) > linkPatience
	})
	n.SetLink(true)
	n.WaitLink(true)
	n.RoundTrip()
	return down
}
