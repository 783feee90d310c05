package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"nicd/bus"
)

// qmp is a connection to QEMU's monitor. Any goroutine may use it.
type qmp struct {
	conn *net.UnixConn

	mu      sync.Mutex // one command at a time
	id      uint64
	answers chan qmpMessage
	dead    chan struct{} // closed when there will be no more answers
	closing chan struct{} // closed when nobody will wait for any
}

// qmpMessage is whatever QEMU sends.
type qmpMessage struct {
	Greeting *struct {
		Version struct {
			QEMU Version `json:"qemu"`
		} `json:"version"`
	} `json:"QMP"`
	Event  string          `json:"event"`
	ID     uint64          `json:"id"`
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Description string `json:"desc"`
	} `json:"error"`
}

// Version is a QEMU's version.
type Version struct {
	Major, Minor, Micro int
}

func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Micro) }

func newQMP(conn *net.UnixConn) *qmp {
	return &qmp{conn: conn, answers: make(chan qmpMessage), dead: make(chan struct{}), closing: make(chan struct{})}
}

// serve takes what QEMU sends until the connection ends, and says why it did.
func (m *qmp) serve() error {
	defer close(m.dead)
	messages := json.NewDecoder(m.conn)
	for {
		var msg qmpMessage
		if err := messages.Decode(&msg); err != nil {
			return err
		}
		if msg.Event != "" {
			continue
		}
		select {
		case m.answers <- msg:
		case <-m.closing:
			return net.ErrClosed
		}
	}
}

func (m *qmp) close() {
	close(m.closing)
	m.conn.Close()
}

// greet waits for QEMU to be ready.
func (m *qmp) greet(ctx context.Context) (v Version, err error) {
	msg, err := m.next(ctx)
	if err != nil {
		return v, err
	}
	if msg.Greeting == nil {
		return v, errors.New("QMP: no greeting")
	}
	return msg.Greeting.Version.QEMU, m.run(ctx, "qmp_capabilities", nil, nil)
}

func (m *qmp) next(ctx context.Context) (qmpMessage, error) {
	select {
	case msg := <-m.answers:
		return msg, nil
	case <-m.dead:
		return qmpMessage{}, bus.ErrGone
	case <-ctx.Done():
		return qmpMessage{}, ctx.Err()
	}
}

// run carries out a command.
func (m *qmp) run(ctx context.Context, command string, arguments, result any) error {
	return m.runWith(ctx, command, arguments, nil, result)
}

// runWith also sends a file, if there is one.
func (m *qmp) runWith(ctx context.Context, command string, arguments any, file *os.File, result any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.id++
	request := map[string]any{"execute": command, "id": m.id}
	if arguments != nil {
		request["arguments"] = arguments
	}
	text, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("QMP %s: %w", command, err)
	}
	if err := m.send(text, file); err != nil {
		return fmt.Errorf("QMP %s: %w: %w", command, bus.ErrGone, err)
	}
	for {
		msg, err := m.next(ctx)
		switch {
		case err != nil:
			return fmt.Errorf("QMP %s: %w", command, err)
		case msg.ID != m.id: // of a command that nobody waited for
			continue
		case msg.Error != nil:
			return fmt.Errorf("QMP %s: %s", command, msg.Error.Description)
		case result == nil:
			return nil
		}
		return json.Unmarshal(msg.Return, result)
	}
}

func (m *qmp) send(text []byte, file *os.File) error {
	if file == nil {
		_, err := m.conn.Write(text)
		return err
	}
	return sendFile(m.conn, text, file)
}
