package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
)

// compiled is a config as one process passes it to another.
type compiled struct {
	Config  Config            `json:"config"`
	Sum     string            `json:"sum"`
	Places  map[string]string `json:"places"`
	Written map[string]string `json:"written"`
	// Guards has the places of each profile's guard.
	Guards map[string]chat.GuardPlaces `json:"guards"`
}

// What a config step compiles, its first argument. What the text is called is the second.
const (
	// StepConfig is a config file. Each further argument is a variable that begins with CHATD_, or a
	// setting as KEY/KEY=VALUE, which counts more.
	StepConfig = "config"
	// StepDefaults is the config of a host without a file, with settings as of StepConfig.
	StepDefaults = "defaults"
	// StepRules is a file of rules.
	StepRules = "rules"
)

// VariablePrefix begins the names of chatd's variables.
const VariablePrefix = "CHATD_"

// MaxCompiled bounds a compiled config, in bytes.
const MaxCompiled = 16 << 20

// Compiled is the config as [ReadCompiled] reads it.
func (cfg Config) Compiled() ([]byte, error) {
	c := compiled{cfg, cfg.Sum, cfg.Places, cfg.Written, map[string]chat.GuardPlaces{}}
	for name, p := range cfg.Profiles {
		c.Guards[name] = p.Guard.Places()
	}
	b, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("cannot write the compiled config: %w", err)
	}
	return b, nil
}

// ReadCompiled reads a compiled config, and trusts nothing of it: an unknown key is an error, every
// value is checked as that of a file is, and what of several keys goes together is checked too.
func ReadCompiled(text []byte) (Config, error) {
	var c compiled
	if len(text) > MaxCompiled {
		return Config{}, chat.Invalid("cannot read a compiled config of %d bytes: want at most %d", len(text),
			MaxCompiled)
	}
	if err := chat.Strict(text, &c); err != nil {
		return Config{}, chat.Invalid("cannot read the compiled config: %w", err)
	}
	cfg := c.Config
	cfg.Sum, cfg.Places, cfg.Written = c.Sum, c.Places, c.Written
	f := Faults{Places: cfg.Places}
	f.values(reflect.ValueOf(cfg), "", "")
	for _, name := range slices.Sorted(maps.Keys(cfg.Profiles)) {
		p := cfg.Profiles[name]
		if p.Name != name {
			f.Add("profiles."+name, Wrong(p.Name, "the name of the profile"))
		}
		f.AddProfile(p)
		p.Guard.SetPlaces(c.Guards[name])
		cfg.Profiles[name] = p
	}
	cfg.Check(&f)
	return cfg, f.Err()
}

// AddProfile adds what a profile says that cannot hold, and reports whether it has no fault.
func (f *Faults) AddProfile(p chat.Profile) bool {
	at := "profiles." + p.Name
	for _, fault := range p.Faults() {
		list, _, _ := strings.Cut(fault.Key, "[")
		if list == "" || !f.Faulty(at+"."+list) {
			f.Add(strings.TrimSuffix(at+"."+fault.Key, "."), fault.Err)
		}
	}
	return !f.Faulty(at)
}

// Check adds what several keys say that does not go together.
func (cfg *Config) Check(f *Faults) {
	for _, name := range slices.Sorted(maps.Keys(cfg.Profiles)) {
		cfg.checkReap(f, cfg.Profiles[name])
	}
	cfg.checkSecrets(f)
	cfg.checkArchive(f)
	if len(cfg.Socket) > maxSocketPath {
		f.Add("socket", Wrong(cfg.Socket, fmt.Sprintf("at most %d bytes (unix(7))", maxSocketPath)))
	}
	if cfg.EgressUser == cfg.User && cfg.User != "" {
		f.Add("egress_user", Wrong(cfg.EgressUser, "another than user, for each needs its own"))
	}
	f.Add("state", absolute(&cfg.State, cfg.State))
	f.Add("run", absolute(&cfg.Run, cfg.Run))
	f.Add("homes", absolute(&cfg.Homes, cfg.Homes))
	f.Add("socket", absolute(&cfg.Socket, cfg.Socket))
	f.Add("uids", cfg.UIDs.check())
	if _, ok := cfg.Profiles[chat.DefaultProfile]; !ok && !f.Faulty("profiles."+chat.DefaultProfile) {
		f.Add("profiles."+chat.DefaultProfile, chat.Invalid("want this profile"))
	}
	cfg.checkMemory(f)
}

// values adds the values of v, and in it, that no file may have.
func (f *Faults) values(v reflect.Value, key, kind string) {
	if text := fmt.Sprint(v.Interface()); checks[kind] != nil && text != "" {
		to := reflect.New(v.Type())
		to.Elem().Set(v)
		err := CheckValue(kind, to.Interface(), text)
		if err == nil && !to.Elem().Equal(v) {
			err = Wrong(text, fmt.Sprint(to.Elem()))
		}
		f.Add(key, err)
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			f.values(v.Elem(), key, kind)
		}
	case reflect.Struct:
		for _, field := range reflect.VisibleFields(v.Type()) {
			if name := KeyOf(field); name != "" && !field.Anonymous && field.IsExported() {
				f.values(v.FieldByIndex(field.Index), join(key, name), join(kind, name))
			}
		}
	case reflect.Map:
		for entries := v.MapRange(); entries.Next(); {
			f.values(entries.Value(), join(key, entries.Key().String()), kind+".*")
		}
	case reflect.Slice:
		for i := range v.Len() {
			f.values(v.Index(i), fmt.Sprintf("%s[%d]", key, i), kind+"[]")
		}
	}
}

func join(key, name string) string { return strings.TrimPrefix(key+"."+name, ".") }

// KeyOf is the key of a field of a config, or empty if it has none.
func KeyOf(f reflect.StructField) string {
	key, _, _ := strings.Cut(cmp.Or(f.Tag.Get("yaml"), f.Tag.Get("json")), ",")
	return strings.TrimPrefix(key, "-")
}
