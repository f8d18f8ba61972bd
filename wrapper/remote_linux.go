package wrapper

import (
	"slices"
	"strconv"
	"strings"
)

// gitHosts are the hosts of URLs that git is given, where it asks them: not of a remote that it
// only writes down, nor those in whose place its settings put another.
func (s shim) gitHosts() []host {
	operands := operandsOf(s.argv[1:], lettersValued["git"], nil)
	asks := []string{"clone", "fetch", "pull", "push", "ls-remote", "submodule", "archive"}
	if len(operands) == 0 || !slices.Contains(asks, operands[0]) {
		return nil
	}
	given := s.options(s.argv[1:], []string{"c", "--config"})
	instead := slices.ContainsFunc(given, func(text string) bool {
		return strings.Contains(strings.ToLower(text), ".insteadof=")
	})
	if instead || s.mentions("insteadof", "include") ||
		s.first("GIT_CONFIG_GLOBAL", "GIT_CONFIG_COUNT", "GIT_CONFIG_PARAMETERS") != "" {
		return nil
	}
	return hostsOfURLs(operands, false)
}

// sshHosts is what ssh, scp or sftp connects to, unless an option or ~/.ssh/config may name
// another host or port for it.
func (s shim) sshHosts() []host {
	if s.sshElsewhere() {
		return nil
	}
	operands := operandsOf(s.argv[1:], lettersValued[s.name], nil)
	port := uint16(22)
	text, _ := s.option(map[bool]string{true: "p", false: "P"}[s.name == "ssh"])
	if n, err := strconv.ParseUint(text, 10, 16); err == nil {
		port = uint16(n)
	}
	if s.name == "ssh" && len(operands) > 1 {
		operands = operands[:1]
	}
	var all []host
	for _, o := range operands {
		if s.name == "scp" {
			at, _, remote := strings.Cut(o, ":")
			if !remote || strings.Contains(at, "/") {
				continue
			}
			o = at
		}
		_, h, user := strings.Cut(strings.TrimPrefix(o, "ssh://"), "@")
		if !user {
			h = strings.TrimPrefix(o, "ssh://")
		}
		all = append(all, host{name: strings.Trim(h, "[]"), port: port})
	}
	return all
}

// redirects are the settings of ssh by which it connects to another host or port than it is told
// (ssh_config(5)).
var redirects = []string{"hostname", "port", "proxy", "include", "match", "canonical"}

func (s shim) sshElsewhere() bool {
	if _, given := s.option("F", "J"); given {
		return true
	}
	for _, text := range s.options(s.argv[1:], []string{"o"}) {
		text = strings.ToLower(strings.TrimSpace(text))
		if slices.ContainsFunc(redirects, func(w string) bool { return strings.HasPrefix(text, w) }) {
			return true
		}
	}
	return s.mentions(redirects...)
}
