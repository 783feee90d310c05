package console

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// table lines up columns: text to the left, numbers to the right.
type table struct {
	head  []string
	right []bool
	rows  [][]string
}

// newTable makes a table; a heading that begins with '>' is of a column of
// numbers.
func newTable(head ...string) *table {
	t := &table{head: head, right: make([]bool, len(head))}
	for i, h := range head {
		t.head[i], t.right[i] = strings.CutPrefix(h, ">")
	}
	return t
}

func (t *table) row(cells ...any) {
	r := make([]string, len(t.head))
	for i, c := range cells {
		r[i] = fmt.Sprint(c)
	}
	t.rows = append(t.rows, r)
}

// fit leaves out columns, in this order, until the table is no wider than that; 0
// is no limit.
func (t *table) fit(columns int, dispensable ...string) {
	for _, name := range dispensable {
		if columns == 0 || t.width() <= columns {
			return
		}
		if i := slices.Index(t.head, name); i >= 0 {
			t.remove(i)
		}
	}
}

func (t *table) remove(i int) {
	t.head, t.right = slices.Delete(t.head, i, i+1), slices.Delete(t.right, i, i+1)
	for n, r := range t.rows {
		t.rows[n] = slices.Delete(r, i, i+1)
	}
}

func (t *table) width() int {
	sum := len(gap) * (len(t.head) - 1)
	for _, w := range t.widths() {
		sum += w
	}
	return sum
}

// widths are those of the columns.
func (t *table) widths() []int {
	width := make([]int, len(t.head))
	for _, r := range append([][]string{t.head}, t.rows...) {
		for i, c := range r {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	return width
}

// gap is between two columns.
const gap = "  "

// print writes the table; emphasis, if any, goes around the head.
func (t *table) print(w io.Writer, emphasis func(string) string) {
	width := t.widths()
	head := t.line(t.head, width)
	if emphasis != nil {
		head = emphasis(head)
	}
	fmt.Fprintln(w, head)
	for _, r := range t.rows {
		fmt.Fprintln(w, t.line(r, width))
	}
}

func (t *table) line(cells []string, width []int) string {
	var b strings.Builder
	for i, c := range cells {
		if i > 0 {
			b.WriteString(gap)
		}
		pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
		if t.right[i] {
			b.WriteString(pad + c)
		} else {
			b.WriteString(c + pad)
		}
	}
	return strings.TrimRight(b.String(), " ")
}
