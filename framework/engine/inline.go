package engine

// This file is the way of a packet down in the goroutine of who sends it
// (Plan.InlineTx), instead of by way of the queue's task.

// inlineRounds is how many rounds a sender does at most: one for what it sent, one
// that finds no more, and as many again for what others send meanwhile. A sender
// that went on for as long as others do would be their task.
const inlineRounds = 4

// wakeUp makes a sleeping task work.
func (t *task) wakeUp() { t.schedule(byUpper) }

// send makes a sleeping task's transmit queue work, in the caller's goroutine. What
// cannot be done at once is the task's: if it is awake, if another sender has it on
// loan, and what is more than a sender's share.
func (t *task) send() {
	if !t.state.CompareAndSwap(idle, lent) {
		t.schedule(byUpper)
		return
	}
	if !t.transmit() {
		t.schedule(byUpper)
	}
	// A task that polls for what is received has set the timer already, and must not
	// have it put off.
	if t.pollTx && !t.pollRx && t.tx.fifo.len() > 0 {
		t.timer.Reset(pollInterval)
	}
	t.giveBack()
}

// transmit does the rounds of a sender that has the task on loan, and tells whether
// nothing is left to do. The upper side has been told then, as before a task sleeps.
func (t *task) transmit() bool {
	q := t.tx
	q.count[TxInlineRuns]++
	done := false
	for n := 0; n < inlineRounds && !done; n++ {
		done = !q.round() && (q.blocked() || !q.upper.ArmTx(q.id))
	}
	q.publish()
	return done
}
