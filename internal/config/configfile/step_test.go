package configfile

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/config"
)

// TestStep: a step answers in the compiled form, or writes nothing.
func TestStep(t *testing.T) {
	for _, c := range []struct {
		args       []string
		text, want string
	}{
		{[]string{"config", "c.yaml", "max_awake=7"}, "max_awake: 8\ncgroup: mine\n", ""},
		{[]string{"defaults", "c.yaml", "max_awake=7"}, "", ""},
		{[]string{"config", "c.yaml", "max_awake"}, "", "want KEY/KEY=VALUE"},
		{[]string{"config", "c.yaml"}, "max_awake: x\n", "c.yaml:1: max_awake"},
		{[]string{"rules", "r.yaml"}, "access: {deny: [/x]}", ""},
		{[]string{"rules", "r.yaml"}, "access: {deny: x}", "r.yaml:1: access.deny"},
		{[]string{"rules"}, "", "want what it is and its name"},
		{[]string{"program", "x"}, "", "want config, defaults or rules"},
	} {
		var out bytes.Buffer
		err := Step(c.args, strings.NewReader(c.text), &out)
		if c.want != "" {
			if !errors.Is(err, chat.ErrInvalid) || !strings.Contains(err.Error(), c.want) || out.Len() > 0 {
				t.Errorf("%q: %v, and %s", c.args, err, &out)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.args, err)
			continue
		}
		if c.args[0] == "rules" {
			if p, err := filerules.ReadCompiled(out.Bytes()); err != nil || p.Sum != filerules.SumOf([]byte(c.text)) {
				t.Errorf("%q: %+v, %v", c.args, p, err)
			}
			continue
		}
		cfg, err := config.ReadCompiled(out.Bytes())
		if err != nil || cfg.MaxAwake != 7 || (cfg.Sum != "") != (c.text != "") {
			t.Errorf("%q: %+v, %v", c.args, cfg, err)
		}
	}
}

// TestUsual: what package config says of the defaults is what defaults.yaml says.
func TestUsual(t *testing.T) {
	cfg, err := Defaults()
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Homes != config.Homes {
		t.Errorf("homes: %s and %s", cfg.Homes, config.Homes)
	}
	for key, name := range config.Usual() {
		f, ok := fieldOf(reflect.TypeFor[config.Config](), key)
		if !ok || reflect.ValueOf(cfg).FieldByIndex(f.Index).String() != name {
			t.Errorf("%s: %s is not what defaults.yaml has", key, name)
		}
	}
}
