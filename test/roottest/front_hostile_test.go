package roottest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/broker"
	"github.com/chatd/chatd/internal/verbs"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// hostileName is what chatd-root calls a front, and how this program knows that it is one.
const hostileName = "chatd-front"

// TestHostileFront runs this program in the front's place. It calls every method of chatd-root with
// hostile names, paths, numbers and sizes, as a caller without a role, as another owner and as an
// operator. chatd-root keeps running, leaks no descriptor, reaches no chat of another owner's, and
// changes nothing outside its own directories.
func TestHostileFront(t *testing.T) {
	opt := options(t)
	self := must.Get(os.Executable())(t)
	before := outsideOf(t)
	log := filepath.Join(filepath.Dir(opt.State), "chatd.log")
	errs := must.Get(os.Create(log))(t)
	defer errs.Close()
	cmd := exec.Command(programs.root, "serve", "--config", configFile(t, opt), "--front", self)
	cmd.Stdout, cmd.Stderr = errs, errs
	must.Do(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	said := func() string {
		return string(must.Get(os.ReadFile(log))(t))
	}
	if !comes(func() bool { return strings.Contains(said(), "HOSTILE begins") }) {
		t.Fatalf("the front did not begin:\n%s", said())
	}
	fds := descriptorsOf(t, cmd.Process.Pid)
	for calls := 0; !strings.Contains(said(), "HOSTILE done"); {
		if !comes(func() bool { return strings.Count(said(), "HOSTILE") > calls }) {
			t.Fatalf("chatd-root did not answer all:\n%s", said())
		}
		calls = strings.Count(said(), "HOSTILE")
	}
	for line := range strings.Lines(said()) {
		expect.True(t, !strings.Contains(line, "HOSTILE FAIL") && !strings.Contains(line, "panic"),
			"%v", line)
	}
	if !comes(func() bool { return descriptorsOf(t, cmd.Process.Pid) <= fds+2 }) { // the front's chat has two
		t.Errorf("chatd-root had %d descriptors and has %d", fds, descriptorsOf(t, cmd.Process.Pid))
	}
	expect.Equal(t, outsideOf(t), before, "outside was\n%s\nand is\n", before)
	must.Do(t, cmd.Process.Signal(syscall.SIGTERM))
	must.Do(t, cmd.Wait())
}

// outsideOf is what no front may change, however it is asked.
func outsideOf(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", "sha256sum /etc/passwd /etc/shadow /etc/group; ls -A /etc /root /srv | sha256sum").CombinedOutput()
	must.True(t, err == nil, "%v: %s", err, out)
	return string(out)
}

func descriptorsOf(t *testing.T, pid int) int {
	t.Helper()
	list := must.Get(os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)))(t)
	return len(list)
}

// hostileFront is the program in the front's place. It says what it finds on standard error.
func hostileFront() int {
	if self, err := os.Readlink("/proc/self/exe"); err == nil && filepath.Base(self) == greedyName {
		return greedyFront()
	}
	c, err := broker.NewClient(os.NewFile(4, "control"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "HOSTILE FAIL", err)
		return 1
	}
	go func() { _ = c.Settings(func(broker.Settings) error { return nil }); os.Exit(0) }()
	root := chat.WithCaller(context.Background(), chat.Caller{Name: "root", Role: chat.RoleOperator})
	for {
		if st, err := c.Status(root); err == nil && st.Ready {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	victim, _, err := c.Create(root, chat.Spec{ExternalID: "victim", Owner: "bob", Awake: new(false)})
	if err == nil {
		err = c.Ready()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "HOSTILE FAIL", err)
		return 1
	}
	fmt.Fprintln(os.Stderr, "HOSTILE begins")
	for _, caller := range []chat.Caller{{}, {Name: "eve", UID: 4242, Role: chat.RoleBridge}, {Name: "bob/../../root", Role: chat.RoleBridge}, {Name: "root", Role: chat.RoleOperator}} {
		h := hostile{chats: c, caller: caller, victim: victim.ID}
		for _, id := range []chat.ID{"", "../../../../etc", "0000000000000000", chat.ID(strings.Repeat("f", 1<<20)), victim.ID} {
			for n := range 6 {
				if id == victim.ID || n == 0 { // whatever the rest, such an id is refused
					fmt.Fprintf(os.Stderr, "HOSTILE calls on %.20q, values %d\n", id, n)
					h.everything(id, n)
				}
			}
		}
		if got, err := c.Get(root, victim.ID); caller.Role != chat.RoleOperator && (err != nil || got.Phase != chat.Ready || got.Awake || len(got.Labels) > 0) {
			fmt.Fprintf(os.Stderr, "HOSTILE FAIL the victim is %+v, %v, after %+v\n", got, err, caller)
		}
	}
	fmt.Fprintln(os.Stderr, "HOSTILE done")
	select {}
}

// hostile makes calls of one caller.
type hostile struct {
	chats  verbs.Root
	caller chat.Caller
	victim chat.ID
}

// everything calls each method of Root with the nth hostile value in each place.
func (h hostile) everything(id chat.ID, n int) {
	chats := reflect.ValueOf(&h.chats).Elem()
	for i := range chats.NumMethod() {
		method := chats.Type().Method(i)
		if method.Type.NumIn() == 1 && id != "" {
			continue // it takes nothing that could be hostile: once for each caller
		}
		ctx, cancel := context.WithTimeout(chat.WithCaller(context.Background(), h.caller), 300*time.Millisecond)
		in := []reflect.Value{reflect.ValueOf(ctx)}
		for j := 1; j < method.Type.NumIn(); j++ {
			arg := reflect.New(method.Type.In(j)).Elem()
			if arg.Type() == reflect.TypeFor[chat.ID]() {
				arg.SetString(string(id))
			} else {
				hostileValue(arg, n, 0)
			}
			in = append(in, arg)
		}
		out := chats.Method(i).Call(in)
		cancel()
		err, _ := out[len(out)-1].Interface().(error)
		h.check(method.Name, id, n, err)
	}
}

// check says what should not have been done.
func (h hostile) check(method string, id chat.ID, n int, err error) {
	// They show what the caller may see, or are for the front itself.
	harmless := slices.Contains([]string{"Status", "Host", "List", "KeptSchedules"}, method)
	switch {
	case err != nil && strings.Contains(err.Error(), "panic"):
		fmt.Fprintf(os.Stderr, "HOSTILE FAIL %s(%.40q) #%d as %+v: %v\n", method, id, n, h.caller, err)
	case err == nil && h.caller.Role != chat.RoleOperator && !harmless && method != "Create":
		fmt.Fprintf(os.Stderr, "HOSTILE FAIL %s(%.40q) #%d was done as %+v\n", method, id, n, h.caller)
	case err == nil && method == "Create" && h.caller.Role == "":
		fmt.Fprintf(os.Stderr, "HOSTILE FAIL %s #%d was done for nobody\n", method, n)
	case err != nil && id == h.victim && h.caller.Role == chat.RoleBridge && errors.Is(err, chat.ErrWrongPhase):
		fmt.Fprintf(os.Stderr, "HOSTILE FAIL %s #%d tells %+v of the victim: %v\n", method, n, h.caller, err)
	}
}

// hostileValue fills v with the nth hostile value of its type.
func hostileValue(v reflect.Value, n, depth int) {
	switch v.Kind() {
	case reflect.String:
		v.SetString([]string{"../../../../../../etc/shadow", "/proc/1/mem", "a\x00b", strings.Repeat("A", 300000), "$(touch /etc/owned); ls", "\xff\xfe"}[n])
	case reflect.Int, reflect.Int64:
		v.SetInt([]int64{-1, math.MaxInt64, math.MinInt64, 1 << 40, 0, 1}[n])
	case reflect.Uint32, reflect.Uint64:
		v.SetUint([]uint64{0, 1, math.MaxUint32, 1000, 65534, 2}[n])
	case reflect.Bool:
		v.SetBool(n%2 == 0)
	case reflect.Pointer:
		if depth < 4 && n != 4 {
			v.Set(reflect.New(v.Type().Elem()))
			hostileValue(v.Elem(), n, depth+1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() && depth < 4 {
				hostileValue(v.Field(i), n, depth+1)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), []int{1, 0, 2, 100, 3, 1}[n], 100))
		for i := range v.Len() {
			hostileValue(v.Index(i), n, depth+1)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		hostileValue(key, n, depth+1)
		hostileValue(value, n, depth+1)
		v.SetMapIndex(key, value)
	case reflect.Interface:
		v.Set(reflect.ValueOf(io.NopCloser(strings.NewReader(strings.Repeat("x", 100000)))))
	case reflect.Func:
		v.Set(reflect.MakeFunc(v.Type(), func([]reflect.Value) []reflect.Value {
			var out []reflect.Value
			for i := range v.Type().NumOut() {
				r := reflect.New(v.Type().Out(i)).Elem()
				if r.Type() == reflect.TypeFor[io.Writer]() {
					r.Set(reflect.ValueOf(io.Discard))
				}
				out = append(out, r)
			}
			return out
		}))
	}
}
