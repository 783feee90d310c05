package engine

// This file says which task owns which queues, which vector serves which tasks, and
// who wakes whom.

// makeTasks makes a task for each pair of queues, or each queue, and ties them
// to their vectors.
func (e *Engine) makeTasks(p *Plan) {
	e.rxTasks, e.txTasks, e.tasks = make([]*task, p.RxQueues), make([]*task, p.TxQueues), nil
	for q := range max(p.RxQueues, p.TxQueues) {
		var rx *rxQueue
		var tx *txQueue
		if q < p.RxQueues {
			rx = e.rx[q]
		}
		if q < p.TxQueues {
			tx = e.tx[q]
		}
		if e.opts.SeparateTasks && rx != nil && tx != nil {
			e.addTask(p, q, rx, nil)
			rx = nil
		}
		e.addTask(p, q, rx, tx)
	}
	for _, v := range e.vectors {
		v.tie(e, p)
	}
	e.setWakers(p)
}

// setWakers tells the upper side whom to call, and so who does what it sends.
func (e *Engine) setWakers(p *Plan) {
	transmit := (*task).wakeUp
	if p.InlineTx {
		transmit = (*task).send
	}
	for q := range max(len(e.rxTasks), len(e.txTasks)) {
		e.upper.SetWaker(q, waker(e.rxTasks, q, (*task).wakeUp), waker(e.txTasks, q, transmit))
	}
}

func (e *Engine) addTask(p *Plan, q int, rx *rxQueue, tx *txQueue) {
	t := newTask(q, rx, tx)
	t.place(p)
	t.pollRx = rx != nil && vectorOf(p.Interrupts.RxVector, q) < 0 && vectorOf(p.Interrupts.TxVector, q) < 0
	t.pollTx = tx != nil && vectorOf(p.Interrupts.TxVector, q) < 0
	e.tasks = append(e.tasks, t)
	if rx != nil {
		e.rxTasks[q] = t
	}
	if tx != nil {
		e.txTasks[q] = t
	}
}

// vectorOf is a queue's vector, -1 if it has none.
func vectorOf(vectors []int, q int) int {
	if q >= len(vectors) {
		return -1
	}
	return vectors[q]
}

func waker(tasks []*task, q int, wake func(*task)) func() {
	if q >= len(tasks) {
		return func() {}
	}
	t := tasks[q]
	return func() { wake(t) }
}

// tie finds the tasks that a vector serves. A queue without a vector is served
// with its partner.
func (v *vector) tie(e *Engine, p *Plan) {
	v.tasks = nil
	for q, t := range e.rxTasks {
		if n := vectorOf(p.Interrupts.RxVector, q); n == v.index || n < 0 && vectorOf(p.Interrupts.TxVector, q) == v.index {
			v.add(t)
		}
	}
	for q, t := range e.txTasks {
		if n := vectorOf(p.Interrupts.TxVector, q); n == v.index || n < 0 && vectorOf(p.Interrupts.RxVector, q) == v.index {
			v.add(t)
		}
	}
	for _, t := range v.tasks {
		for _, s := range v.tasks {
			if s != t {
				t.siblings = append(t.siblings, s)
			}
		}
	}
}

func (v *vector) add(t *task) {
	for _, have := range v.tasks {
		if have == t {
			return
		}
	}
	v.tasks = append(v.tasks, t)
	t.vectors = append(t.vectors, v)
}

func (e *Engine) startTasks() {
	for _, t := range e.tasks {
		t.start()
	}
}

func (e *Engine) stopTasks() {
	for _, t := range e.tasks {
		t.stop()
	}
}

// tasksOf returns the task or the two of a queue pair.
func (e *Engine) tasksOf(q int) []*task {
	var tasks []*task
	for _, t := range e.tasks {
		if t.pair == q {
			tasks = append(tasks, t)
		}
	}
	return tasks
}
