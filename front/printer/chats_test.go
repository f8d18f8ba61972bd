package printer

import (
	"reflect"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
)

// TestLimitWords: every limit is shown by its key, one that bounds nothing is not, and sizes are
// read as such.
func TestLimitWords(t *testing.T) {
	l := chat.DefaultLimits()
	const known = "swap_max 0B, pids_max 200, "
	if words := limitWords(l); strings.Contains(words, "fsize") || !strings.Contains(words, known) {
		t.Errorf("by default: %s", words)
	}
	l.FSize = 1 << 20
	if words := limitWords(l); !strings.Contains(words, ", fsize 1.0MiB") {
		t.Errorf("a bound: %s", words)
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[chat.Limits]()) {
		if v := reflect.ValueOf(&l).Elem().FieldByIndex(f.Index); v.Kind() == reflect.Uint64 {
			v.SetUint(7)
		}
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[chat.Limits]()) {
		if key := f.Tag.Get("yaml"); !f.Anonymous && !strings.Contains(limitWords(l), key+" ") {
			t.Errorf("%s is not shown: %s", key, limitWords(l))
		}
	}
}
