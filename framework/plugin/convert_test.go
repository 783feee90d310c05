package plugin

import (
	"errors"
	"reflect"
	"testing"

	"nicd/framework"
	"nicd/framework/engine"
	"nicd/proto/driverpb"
)

// fill sets every field under v to something that is not zero, so that a field
// which a conversion forgets shows.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), n)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), n)
		}
	case reflect.String:
		v.SetString("s" + itoa(*n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n))
	default:
		v.SetUint(uint64(*n%3 + 1))
	}
}

func filled[T any]() (v T) {
	n := 0
	fill(reflect.ValueOf(&v).Elem(), &n)
	return v
}

func same[T any](t *testing.T, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("lost on the way:\n got %+v\nwant %+v", got, want)
	}
}

func TestNothingIsLostInConversion(t *testing.T) {
	info := filled[framework.Info]()
	same(t, infoFrom(infoTo(info)), info)

	plan := filled[engine.Plan]()
	plan.InlineTx = false // never gets this far
	got, err := planFrom(planTo(plan))
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, plan)

	event := filled[engine.Event]()
	same(t, eventFrom(eventTo(event)), event)

	filters := filled[framework.Filters]()
	back, err := filtersFrom(filtersTo(filters))
	if err != nil {
		t.Fatal(err)
	}
	same(t, back, filters)

	d := filled[framework.Description]()
	same(t, descriptionFrom(descriptionTo(d)).Description, d)
}

// What a plugin says of its device is checked before anyone counts on it, and
// its words can do nothing to a terminal.
func TestNonsenseIsRefused(t *testing.T) {
	if err := (new(framework.Info)).Check(); !errors.Is(err, framework.ErrInfo) {
		t.Errorf("an empty Info: %v", err)
	}
	if got := eventFrom(&driverpb.Event{Reason: "gone\n\x1b[2J"}).Reason; got != "gone ?[2J" {
		t.Errorf("reason %q", got)
	}
	e := &Error{Plugin: "p", Err: errors.New("\x1b]0;x\a")}
	if got := e.Error(); got != "plugin p: ?]0;x?" {
		t.Errorf("error %q", got)
	}
}

// nicd would make as many counters as a plugin says it has queues.
func TestNonsensePlugin(t *testing.T) {
	p, _ := start(t, "nonsense")
	_, c := wire(t)
	control, err := p.Attach(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := control.Info(t.Context()); !errors.Is(err, framework.ErrInfo) {
		t.Errorf("%+v, %v", info, err)
	}
}

func TestZeroValuesSurviveConversion(t *testing.T) {
	got, err := planFrom(planTo(engine.Plan{}))
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, engine.Plan{})
	same(t, infoFrom(nil), framework.Info{})
	same(t, descriptionFrom(nil), Description{})
}
