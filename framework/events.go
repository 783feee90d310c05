package framework

import "fmt"

// Fault adds queues, a bit for each, that have stopped or make no sense, and why.
func (e *Events) Fault(queues uint64, format string, args ...any) {
	e.QueueFault |= queues
	if e.Reason != "" {
		e.Reason += "; "
	}
	e.Reason += fmt.Sprintf(format, args...)
}
