package roottest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/must"
)

// failpoints is the directory by which programs with the tag failpoints are told what to kill at
// which point, and tell which points they met: see sys.Failpoint.
type failpoints string

func (f failpoints) file() string { return filepath.Join(string(f), "failpoint") }

// order has these processes killed at the point, once; 0 is the one that meets it.
func (f failpoints) order(t *testing.T, point string, pids ...int) {
	t.Helper()
	text := point
	for _, pid := range pids {
		text += fmt.Sprintf(" %d", pid)
	}
	must.Do(t, os.WriteFile(f.file()+".new", []byte(text), 0o600))
	must.Do(t, os.Rename(f.file()+".new", f.file()))
}

// waits reports that the order was not obeyed yet.
func (f failpoints) waits() bool { return exists(f.file())() }

// met are the points that are met while do runs, each once. Where time is short those before a
// step are left out: one of both is enough.
func (f failpoints) met(t *testing.T, do func()) (points []string) {
	t.Helper()
	must.Do(t, os.WriteFile(f.file()+".met", nil, 0o600))
	do()
	text, err := os.ReadFile(f.file() + ".met")
	must.Do(t, errors.Join(err, os.Remove(f.file()+".met")))
	for _, point := range strings.Fields(string(text)) {
		if !slices.Contains(points, point) {
			points = append(points, point)
		}
	}
	if testing.Short() {
		points = slices.DeleteFunc(points, func(point string) bool {
			step, before := strings.CutSuffix(point, ".before")
			return before && slices.Contains(points, step+".after")
		})
	}
	return points
}

// metByRoot are the points of chatd-root in the life of a chat, those of each verb. What a new step
// adds is among them.
func metByRoot(t *testing.T, d *daemon, f failpoints) map[string][]string {
	t.Helper()
	of, no := map[string][]string{}, false
	for _, point := range f.met(t, func() {
		c, _, err := d.Create(t.Context(), chat.Spec{ExternalID: "points", Awake: &no})
		must.Do(t, err)
		must.Get(d.Wake(t.Context(), c.ID))(t)
		must.Get(d.Sleep(t.Context(), c.ID))(t)
		must.Get(d.Wake(t.Context(), c.ID))(t)
		must.Do(t, d.Reap(t.Context(), c.ID))
	}) {
		verb, _, _ := strings.Cut(point, ".")
		of[verb] = append(of[verb], point)
	}
	for _, verb := range []string{"create", "wake", "sleep", "reap"} {
		if len(of[verb]) < 2 {
			t.Fatalf("the points of %s are %q", verb, of[verb])
		}
	}
	return of
}
