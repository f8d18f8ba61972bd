package config

import (
	"strconv"
	"strings"
)

// Explained is [Config.YAML] with the place behind each value: default, a file's name and line, a
// variable or a flag.
func (cfg Config) Explained() (string, error) {
	text, err := cfg.YAML()
	if err != nil {
		return "", err
	}
	printed := &decoder{begun: map[string]bool{}, faults: faults{places: map[string]string{}}}
	if err := printed.read("", text); err != nil {
		return "", err
	}
	groups := map[string]bool{}
	for key := range printed.places {
		groups[key[:max(0, strings.LastIndexByte(key, '.'))]] = true
	}
	lines := strings.Split(string(text), "\n")
	for key, place := range printed.places {
		line, err := strconv.Atoi(strings.TrimPrefix(place, ":"))
		if err == nil && !groups[key] && !strings.Contains(key, "[") {
			lines[line-1] += "  # " + cfg.origin(key)
		}
	}
	return strings.Join(lines, "\n"), nil
}

// origin is where the value of a key comes from.
func (cfg Config) origin(key string) string {
	origin, ok := cfg.places[key]
	if !ok || strings.HasPrefix(origin, defaultsName+":") {
		origin = "default"
	}
	if added, ok := cfg.places[key+"_add"]; ok && !strings.HasPrefix(added, defaultsName+":") {
		origin += ", " + added
	}
	return origin
}
