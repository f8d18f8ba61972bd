package enforce

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/orders"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// FuzzOrder: whatever comes over the socket is an order or an error, an order says the
// same when it is written again, and one that is nobody's does nothing.
func FuzzOrder(f *testing.F) {
	for _, text := range []string{`{"verb":"probe"}`, `{"verb":"hold","chat":"00000000000000aa","uid":1,"pid":2,"start":3,"home":"/h","rules":{"mode":"deny-wins"}}`,
		`{"verb":"drop","chat":"../../etc"}`, `{"verb":"x","more":1}`, `[]`, `{"pid":1e99}`, `{"rules":"?"}`, "{\"\":\"\",\"\"\x80", "\x14",
		`{"verB":"000","ChAt":"0000000000000000","uid":0,"pid":1,"stArt":1,"home":"00","ruLes":"0000"}`, strings.Repeat("[", 10000)} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := orders.Read(strings.NewReader(string(b)))
		if err != nil {
			expect.True(t, reflect.DeepEqual(o, orders.Order{}), "an error and %+v", o)
			return
		}
		again := must.Get(json.Marshal(o))(t)
		same, err := orders.Read(strings.NewReader(string(again)))
		if err != nil || !sameJSON(same.Rules, o.Rules) || initProcessOf(same) != initProcessOf(o) || same.Verb != o.Verb || same.Home != o.Home {
			t.Errorf("%+v becomes %+v, %v", o, same, err)
		}
		if o.Verb == orders.Apply {
			return // it would look for the process
		}
		k := &enforcer{sessions: map[chat.ID]*session{}}
		if _, err := k.execute(o); err == nil && o.Verb != orders.Drop && (o.Verb != orders.Probe || o.Chat != "") {
			t.Errorf("%+v is obeyed", o)
		}
	})
}

func sameJSON(a, b json.RawMessage) bool {
	one, err := json.Marshal(a)
	other, berr := json.Marshal(b)
	return err == nil && berr == nil && string(one) == string(other)
}
