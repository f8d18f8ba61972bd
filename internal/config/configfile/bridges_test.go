package configfile

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
)

// TestBridges: without the key bridges, the profile's own keys decide which bridges may use it, and
// not the paths exposed to all profiles.
func TestBridges(t *testing.T) {
	cfg, err := load(t, `expose_paths: [{source: /opt/go, mode: ro}]
profiles:
  plain: {}
  web: {egress: ['203.0.113.5:443']}
  adas: {egress: ['203.0.113.5:443'], bridges: [ada, bob]}
  all: {egress: ['203.0.113.5:443'], bridges: ["*"]}
  none: {bridges: []}
`)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{"default": {"*"}, "plain": {"*"}, "web": {}, "adas": {"ada", "bob"}, "all": {"*"}, "none": {}} {
		if got := cfg.Profiles[name].Bridges; got == nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := cfg.OperatorsOnly(); !reflect.DeepEqual(got, []string{"none", "web"}) {
		t.Errorf("for operators alone: %q", got)
	}
	for text, want := range map[string]string{
		"profiles:\n  x:\n    bridges:\n     - ada\n     - ../x\n": `chatd.yaml:5: profiles.x.bridges[1]: cannot use owner "../x"`,
		"profiles:\n  x:\n    bridges: ada\n":                      `chatd.yaml:3:`,
	} {
		if _, err := load(t, text); !errors.Is(err, chat.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q\n got %v\nwant %s", text, err, want)
		}
	}
}
