package configfile

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/config"
)

// Every error about a path that a profile opens names file, line and key.
func TestViewErrors(t *testing.T) {
	const rule = "profiles:\n  x:\n    expose_paths:\n      - source: /data/x\n        target: /opt/x\n        mode: ro\n"
	for text, want := range map[string]string{
		rule + "      - source: y\n        mode: ro\n":                                  `chatd.yaml:7: profiles.x.expose_paths[1].source: "y" is relative: want an absolute path`,
		rule + "      - source: /data/y\n        mode: w\n":                             `chatd.yaml:8: profiles.x.expose_paths[1].mode: "w": want ro or rw`,
		rule + "      - source: /data/y\n":                                              `profiles.x.expose_paths[1].mode: "": want ro or rw`,
		rule + "      - target: /opt/y\n        mode: ro\n":                             `expose_paths[1].source: it is empty: want an absolute path`,
		rule + "      - {source: /data/y, target: /opt/x, mode: rw}\n":                  `chatd.yaml:7: profiles.x.expose_paths[1]: target "/opt/x" has a rule already, expose_paths[0]`,
		rule + "      - {source: /data/y, target: /proc/x, mode: ro}\n":                 `chatd.yaml:7: profiles.x.expose_paths[1].target: "/proc/x" would cover chatd's own /proc`,
		rule + "      - {source: /data/y, targt: /opt/y, mode: ro}\n":                   `chatd.yaml:7: unknown key "targt"`,
		"profiles:\n  x:\n    expose_paths: /data/x\n":                                  `chatd.yaml:3:`,
		"profiles:\n  x:\n    expose_paths: [/data/x]\n":                                `chatd.yaml:3:`,
		"expose_paths:\n  - {source: /data, mode: ro}\n  - {source: /etc, mode: ro}\n":  `chatd.yaml:3: expose_paths[1].source: "/etc" may not be exposed: /etc/shadow: it holds passwords`,
		"profiles:\n  x:\n    allow_read_paths: ['^/data/x$', 'x']\n":                   `chatd.yaml:3: profiles.x.allow_read_paths[1]: "x" has no literal beginning: want ^/DIRECTORY/ in front`,
		"profiles:\n  x:\n    allow_read_paths:\n     - '^/data/x$'\n     - '^/data/('": `chatd.yaml:5: profiles.x.allow_read_paths[1]: "^/data/(": error parsing regexp`,
		"profiles:\n  x:\n    allow_write_paths: ['^/proc/x$']\n":                       `chatd.yaml:3: profiles.x.allow_write_paths[0]: "^/proc/x$": /proc and /sys are for reading`,
		"profiles:\n  x:\n    allow_read_paths: ['^/proc/.*']\n":                        `chatd.yaml:3: profiles.x.allow_read_paths[0]: "^/proc/.*": below /proc a grant is one file`,
		"profiles:\n  x:\n    allow_read_outside_workspace: yes\n":                      `chatd.yaml:3: profiles.x.allow_read_outside_workspace: "yes": want true or false`,
	} {
		_, err := load(t, text)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "cannot ") || !errors.Is(err, chat.ErrInvalid) {
			t.Errorf("%q\n got %v\nwant %s", text, err, want)
		}
	}
}

// TestViewMerges: a profile's own rules override those for all profiles, and both samples of
// PicoClaw's pages load.
func TestViewMerges(t *testing.T) {
	cfg, err := load(t, `expose_paths:
  - {source: /opt/toolchains/go, mode: ro}
  - {source: /data/shared-assets, target: /opt/picoclaw-instance-a/workspace/assets, mode: rw}
profiles:
  x:
    expose_paths: [{source: /data/other, target: /opt/toolchains/go/, mode: rw}]
    allow_read_paths: ["^/etc/hosts$", "^/proc/cpuinfo$", "^/sys/class/net/[^/]+/address$"]
    allow_write_paths: ["^/tmp/picoclaw-.*\\.txt$"]
    allow_read_outside_workspace: true
`)
	if err != nil {
		t.Fatal(err)
	}
	assets := chat.Expose{Source: "/data/shared-assets", Target: "/opt/picoclaw-instance-a/workspace/assets", Mode: chat.ReadWrite}
	x := cfg.Profiles["x"]
	if want := []chat.Expose{{Source: "/data/other", Target: "/opt/toolchains/go", Mode: chat.ReadWrite}, assets}; !reflect.DeepEqual(x.ExposePaths, want) {
		t.Errorf("x: %+v", x.ExposePaths)
	}
	if want := []chat.Expose{{Source: "/opt/toolchains/go", Target: "/opt/toolchains/go", Mode: chat.ReadOnly}, assets}; !reflect.DeepEqual(cfg.Profiles["default"].ExposePaths, want) {
		t.Errorf("default: %+v", cfg.Profiles["default"].ExposePaths)
	}
	if !x.AllowReadOutsideWorkspace || len(x.AllowReadPaths) != 3 || len(x.AllowWritePaths) != 1 || cfg.Profiles["default"].AllowReadOutsideWorkspace {
		t.Errorf("%+v", x)
	}
	out, err := YAML(cfg)
	if err != nil {
		t.Fatal(err)
	}
	again, err := load(t, string(out))
	if err != nil || !sameConfig(cfg, again) {
		t.Errorf("read back: %v\n%s", err, out)
	}
}

// TestPlaceOf: an error found on the host names the place where the rule is written.
func TestPlaceOf(t *testing.T) {
	cfg, err := load(t, `expose_paths:
  - {source: /data/a, mode: ro}
  - {source: /data/b, mode: ro}
profiles:
  x:
    expose_paths:
      - {source: /data/c, mode: ro}
      - {source: /data/d, target: /data/b, mode: ro}
    allow_read_paths:
      - ^/data/x$
      - ^/data/y$
`)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"expose_paths[0].source": "chatd.yaml:2: expose_paths[0].source: said", "expose_paths[1].source": "chatd.yaml:8: profiles.x.expose_paths[1].source: said",
		"expose_paths[2].source": "chatd.yaml:7: profiles.x.expose_paths[0].source: said", "allow_read_paths[1]": "chatd.yaml:11: profiles.x.allow_read_paths[1]: said",
	} {
		check := func(_ config.Config, p chat.Profile) (string, error) {
			if p.Name != "x" {
				return "", nil
			}
			return key, errors.New("said")
		}
		if err := cfg.CheckViews(check); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", key, err, want)
		}
	}
}
