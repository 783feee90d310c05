package plugin

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/rs/zerolog"
)

// maxLine is the longest line of output that is kept whole.
const maxLine = 64 << 10

// output logs what a plugin prints, one record a line. It is text from an
// untrusted process: nothing in it can do more than become a record.
type output struct {
	log    zerolog.Logger // has driver, pid and generation
	stream string

	mu   sync.Mutex
	last string
	may  allowance
}

// read logs all lines of r.
func (o *output) read(r io.Reader) {
	lines := bufio.NewReaderSize(r, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			err = nil // a longer line becomes several records
		}
		o.line(bytes.TrimRight(line, "\r\n"))
		if err != nil {
			return
		}
	}
}

// lastLine is the last line that had something in it.
func (o *output) lastLine() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last
}

// Fields of a record that nicd sets itself: not taken from the plugin.
var ownFields = []string{"driver", "pid", "generation", "interface", "stream", zerolog.TimestampFieldName, "@timestamp"}

// allowed tells whether one more record may be logged, and says so when others
// were not.
func (o *output) allowed() bool {
	o.mu.Lock()
	refused, ok := o.may.take()
	o.mu.Unlock()
	if refused > 0 {
		o.log.Warn().Str("stream", o.stream).Int("lines", refused).Msg("the plugin printed too much: lines are left out here")
	}
	return ok
}

// line logs one line: a JSON object as the record that it is (in zerolog's or
// hclog's words), anything else as a warning.
func (o *output) line(line []byte) {
	text := strings.TrimSpace(string(line))
	if text == "" {
		return
	}
	fields := make(map[string]any)
	if line[0] != '{' || json.Unmarshal(line, &fields) != nil {
		text = printable(text)
		o.keep(text)
		if o.allowed() {
			o.log.Warn().Str("stream", o.stream).Msg(text)
		}
		return
	}
	fields = cleanFields(fields)
	for _, name := range ownFields {
		delete(fields, name)
	}
	level := levelOf(takeText(fields, zerolog.LevelFieldName, "@level"))
	message := printable(takeText(fields, zerolog.MessageFieldName, "@message"))
	if message != "" {
		text = message
		if cause, _ := fields[zerolog.ErrorFieldName].(string); cause != "" {
			text += ": " + cause
		}
	}
	o.keep(text)
	if o.allowed() {
		o.log.WithLevel(level).Fields(fields).Msg(message)
	}
}

// cleanFields makes fields harmless to whatever prints them: zerolog's console writer
// quotes the values of fields, but neither their names nor what is inside of a value,
// nor who is said to have written it (caller).
func cleanFields(fields map[string]any) map[string]any {
	clean := make(map[string]any, len(fields))
	for name, value := range fields {
		if name == zerolog.CallerFieldName {
			name = "plugin_caller"
		}
		clean[printable(name)] = cleanValue(value)
	}
	return clean
}

func cleanValue(value any) any {
	switch v := value.(type) {
	case string:
		return printable(v)
	case map[string]any:
		return cleanFields(v)
	case []any:
		for n := range v {
			v[n] = cleanValue(v[n])
		}
	}
	return value
}

// takeText removes fields and returns the first one's text. One that is no text
// stays, under a name that clashes with nothing.
func takeText(fields map[string]any, names ...string) (text string) {
	for _, name := range names {
		v, ok := fields[name]
		if !ok {
			continue
		}
		delete(fields, name)
		if s, ok := v.(string); !ok {
			fields["plugin_"+strings.TrimPrefix(name, "@")] = v
		} else if text == "" {
			text = s
		}
	}
	return text
}

func (o *output) keep(text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = shorten(text)
}

// levelOf reads a record's level. Fatal and panic are the plugin's own end, not
// nicd's, and a record that claims no level gets one.
func levelOf(name string) zerolog.Level {
	switch level, err := zerolog.ParseLevel(name); {
	case err != nil || level == zerolog.NoLevel || level == zerolog.Disabled:
		return zerolog.WarnLevel
	case level > zerolog.ErrorLevel:
		return zerolog.ErrorLevel
	default:
		return level
	}
}
