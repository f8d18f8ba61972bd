package chat

import (
	"maps"
	"slices"
	"strings"
)

// Bounds of the variables of one profile or one chat.
const (
	MaxEnv      = 32
	MaxEnvName  = 64
	MaxEnvBytes = 4 << 10 // names and values together
)

// ownEnv are names that chatd sets itself, and names that change what runs before the chat's first
// command: its shell, its terminal, the loader and the shims.
var ownEnv = []string{
	"HOME", "USER", "LOGNAME", "SHELL", "TERM", "PATH", "PWD", "TMPDIR", "IFS", "ENV",
	"SHELLOPTS", "BASHOPTS",
	"POSIXLY_CORRECT", "PROMPT_COMMAND", "PS0", "PS1", "HISTFILE", "GODEBUG", "GOTRACEBACK", "GOCOVERDIR",
	"XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR",
}

// ownEnvPrefixes are prefixes of further such names.
var ownEnvPrefixes = []string{"LD_", "BASH_", "TMUX", "CHATD_", "GLIBC_", "MALLOC_"}

// CheckEnv accepts variables for every session and run of a chat. Variables are not for secrets:
// records, answers and every program of the chat have them. On an error about one variable, name is
// its name.
func CheckEnv(env map[string]string) (name string, err error) {
	if len(env) > MaxEnv {
		return "", Invalid("%d variables, want at most %d", len(env), MaxEnv)
	}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if err := checkEnvName(name); err != nil {
			return name, err
		}
		if err := checkText("its value", env[name], MaxEnvBytes); err != nil {
			return name, err
		}
		size += len(name) + len(env[name])
	}
	if size > MaxEnvBytes {
		return "", Invalid("names and values have %d bytes, want at most %d", size, MaxEnvBytes)
	}
	return "", nil
}

func checkEnvName(name string) error {
	if name == "" || len(name) > MaxEnvName || strings.Contains(digits, name[:1]) ||
		strings.Trim(name, alphabet+"_") != "" {
		return Invalid("want a name of 1 to %d letters, digits and underscores", MaxEnvName)
	}
	own := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
	if slices.Contains(ownEnv, name) || slices.ContainsFunc(ownEnvPrefixes, own) {
		return Invalid("it is chatd's own, or changes what runs before the chat's commands: set it in ~/.bashrc, or for one run")
	}
	return nil
}

// EnvLines are the variables in the form NAME=value, sorted.
func EnvLines(env map[string]string) []string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		lines = append(lines, name+"="+env[name])
	}
	return lines
}
