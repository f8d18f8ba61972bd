package configfile

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/chatd/chatd/internal/config"
	"github.com/goccy/go-yaml"
)

// Explained is [Config.YAML] with the place behind each value: default, a file's name and line, a
// variable or a flag.
func Explained(cfg config.Config) (string, error) {
	text, err := YAML(cfg)
	if err != nil {
		return "", err
	}
	printed := &decoder{begun: map[string]bool{}, Faults: config.Faults{Places: map[string]string{}}}
	if err := printed.read("", text); err != nil {
		return "", err
	}
	groups := map[string]bool{}
	for key := range printed.Places {
		groups[key[:max(0, strings.LastIndexByte(key, '.'))]] = true
	}
	lines := strings.Split(string(text), "\n")
	for key, place := range printed.Places {
		line, err := strconv.Atoi(strings.TrimPrefix(place, ":"))
		if err == nil && !groups[key] && !strings.Contains(key, "[") {
			lines[line-1] += "  # " + originOf(cfg, key)
		}
	}
	return strings.Join(lines, "\n"), nil
}

// origin is where the value of a key comes from.
func originOf(cfg config.Config, key string) string {
	origin, ok := cfg.Places[key]
	if !ok || strings.HasPrefix(origin, defaultsName+":") {
		origin = "default"
	}
	if added, ok := cfg.Places[key+"_add"]; ok && !strings.HasPrefix(added, defaultsName+":") {
		origin += ", " + added
	}
	return origin
}

// YAML writes cfg as a file from which chatd reads an equal config.
func YAML(cfg config.Config) ([]byte, error) {
	var b bytes.Buffer
	// The names of JSON's fields are the keys of a file.
	if err := yaml.NewEncoder(&b, yaml.UseJSONMarshaler(),
		yaml.IndentSequence(true)).Encode(cfg); err != nil {
		return nil, fmt.Errorf("cannot write the config: %w", err)
	}
	return b.Bytes(), nil
}
