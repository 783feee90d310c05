package console

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"strconv"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// JSON prints a message with its fields' names as in the schema: all of them,
// zero or not, numbers as numbers, in the schema's order. (protojson leaves
// fields out or turns 64-bit numbers into strings; a script wants neither.)
func JSON(w io.Writer, m proto.Message) error {
	var compact, indented bytes.Buffer
	writeMessage(&compact, m.ProtoReflect())
	if err := json.Indent(&indented, compact.Bytes(), "", "  "); err != nil {
		return err
	}
	indented.WriteByte('\n')
	_, err := indented.WriteTo(w)
	return err
}

func writeMessage(b *bytes.Buffer, m protoreflect.Message) {
	if !m.IsValid() {
		b.WriteString("null")
		return
	}
	b.WriteByte('{')
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if i > 0 {
			b.WriteByte(',')
		}
		writeString(b, string(f.Name()))
		b.WriteByte(':')
		if f.IsList() {
			writeList(b, f, m.Get(f).List())
		} else {
			writeValue(b, f, m.Get(f))
		}
	}
	b.WriteByte('}')
}

func writeList(b *bytes.Buffer, f protoreflect.FieldDescriptor, l protoreflect.List) {
	b.WriteByte('[')
	for i := range l.Len() {
		if i > 0 {
			b.WriteByte(',')
		}
		writeValue(b, f, l.Get(i))
	}
	b.WriteByte(']')
}

func writeValue(b *bytes.Buffer, f protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch f.Kind() {
	case protoreflect.MessageKind:
		writeMessage(b, v.Message())
	case protoreflect.StringKind:
		writeString(b, v.String())
	case protoreflect.BoolKind:
		b.WriteString(strconv.FormatBool(v.Bool()))
	case protoreflect.DoubleKind, protoreflect.FloatKind:
		writeFloat(b, v.Float())
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		b.WriteString(strconv.FormatUint(v.Uint(), 10))
	default:
		b.WriteString(strconv.FormatInt(v.Int(), 10))
	}
}

// writeFloat writes null for what JSON has no number for.
func writeFloat(b *bytes.Buffer, f float64) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		b.WriteString("null")
		return
	}
	b.WriteString(strconv.FormatFloat(f, 'g', 6, 64))
}

func writeString(b *bytes.Buffer, s string) {
	quoted, _ := json.Marshal(s)
	b.Write(quoted)
}
