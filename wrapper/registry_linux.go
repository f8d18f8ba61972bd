package wrapper

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/chatd/chatd/filerules"
)

// npmRegistry and pipIndex are the defaults of npm and pip.
const (
	npmRegistry = "https://registry.npmjs.org/"
	pipIndex    = "https://pypi.org/simple/"
)

// registries are the hosts from which npm or pip would fetch what the command line names. A
// program that fetches nothing, or of which that is not known here, has none.
func (s shim) registries() []host {
	var from string
	switch s.name {
	case "npm":
		if s.npmFetches() {
			from = s.npmRegistry()
		}
	case "pip", "pip3":
		if s.pipFetches() {
			from = s.pipIndex()
		}
	}
	if u, err := url.Parse(from); err != nil || u.Hostname() == "" {
		return nil
	}
	return hostsOfURLs([]string{from}, false)
}

// npmRegistry is the registry that the command names, or npm's default. It is empty where a
// settings file names one, which only npm reads.
func (s shim) npmRegistry() string {
	if v, given := s.option("--registry"); given {
		return v
	}
	if v := s.first("npm_config_registry", "NPM_CONFIG_REGISTRY"); v != "" {
		return v
	}
	if s.mentions("registry", "offline") || s.first("NPM_CONFIG_USERCONFIG", "npm_config_userconfig", "NPM_CONFIG_OFFLINE", "npm_config_offline") != "" {
		return ""
	}
	return npmRegistry
}

func (s shim) pipIndex() string {
	if _, none := s.option("--no-index"); none || s.variable("PIP_NO_INDEX") != "" {
		return ""
	}
	if v, given := s.option("i", "--index-url", "--pypi-url"); given {
		return v
	}
	if v := s.variable("PIP_INDEX_URL"); v != "" {
		return v
	}
	if s.mentions("index-url", "index_url", "no-index", "find-links") || s.first("PIP_CONFIG_FILE", "PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL") != "" {
		return ""
	}
	if _, given := s.option("f", "--find-links", "--extra-index-url"); given {
		return "" // it may be found there
	}
	return pipIndex
}

// npmFetches reports whether npm would ask its registry: for packages that it is given by name, or
// for those of the project here, of which none is installed.
func (s shim) npmFetches() bool {
	_, offline := s.option("--offline")
	operands := operandsOf(s.argv[1:], "", registryValued)
	if offline || len(operands) == 0 {
		return false
	}
	verb, names := operands[0], operands[1:]
	switch verb {
	case "install", "i", "in", "add", "ci", "update", "up", "install-test", "it":
		if len(names) == 0 {
			return s.projectFetches()
		}
		return slices.ContainsFunc(names, isPackageName)
	case "view", "info", "show", "search", "ping", "publish", "outdated":
		return true
	}
	return false
}

// isPackageName tells the name of a package, with a scope or version, from a directory, an
// archive or a URL.
func isPackageName(name string) bool {
	if strings.HasPrefix(name, "@") {
		return strings.Count(name, "/") == 1
	}
	_, source, aliased := strings.Cut(name, "@")
	return !strings.ContainsAny(name, "/:") && !strings.HasPrefix(name, ".") && !strings.HasPrefix(name, "~") && !strings.HasSuffix(name, "gz") &&
		!(aliased && strings.ContainsAny(source, "/:"))
}

// projectFetches reports whether the project here has dependencies by name and none of them
// installed.
func (s shim) projectFetches() bool {
	if _, err := os.Stat(filepath.Join(s.cwd, "node_modules")); err == nil {
		return false
	}
	var p struct {
		Dependencies         map[string]string `json:"dependencies"`
		DevDependencies      map[string]string `json:"devDependencies"`
		OptionalDependencies map[string]string `json:"optionalDependencies"`
	}
	if json.Unmarshal([]byte(readSettings(filepath.Join(s.cwd, "package.json"))), &p) != nil {
		return false
	}
	for _, all := range []map[string]string{p.Dependencies, p.DevDependencies, p.OptionalDependencies} {
		for _, from := range all {
			if !strings.ContainsAny(from, "/:") {
				return true
			}
		}
	}
	return false
}

// pipFetches reports whether pip would ask its index, for a package that it is given by name
// and that is not installed, or has to be newer.
func (s shim) pipFetches() bool {
	operands := operandsOf(s.argv[1:], "ircfte", registryValued)
	if len(operands) == 0 {
		return false
	}
	_, newer := s.option("U", "--upgrade", "--force-reinstall", "--ignore-installed")
	switch operands[0] {
	case "download", "wheel", "index", "search":
		newer = true
	case "install":
	default:
		return false
	}
	return slices.ContainsFunc(append(operands[1:], s.required()...), func(name string) bool {
		return isPackageName(name) && !strings.HasSuffix(name, ".whl") && !strings.HasSuffix(name, ".zip") && (newer || !s.pipHas(name))
	})
}

// required are the packages that files of requirements name (pip install -r).
func (s shim) required() (names []string) {
	for _, f := range s.options(s.argv[1:], []string{"r", "--requirement"}) {
		for line := range strings.Lines(readSettings(filerules.Fold(s.policy.Home, s.cwd, f))) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), " ")
			if line != "" && line[0] != '#' && line[0] != '-' {
				names = append(names, line)
			}
		}
	}
	return names
}

// pipHas reports whether a package of the name is installed where Python may look for it.
func (s shim) pipHas(name string) bool {
	if end := strings.IndexAny(name, "[<>=!~; "); end >= 0 {
		name = name[:end]
	}
	places := []string{s.policy.Home + "/.local/lib/python3*/site-packages", "/usr/lib/python3/dist-packages", "/usr/local/lib/python3*/dist-packages"}
	if venv := s.variable("VIRTUAL_ENV"); venv != "" {
		places = []string{venv + "/lib/python3*/site-packages"}
	}
	for _, p := range places {
		found, _ := filepath.Glob(p + "/*-info") // a constant pattern but for two directories: without a match there is none
		for _, f := range found {
			if has, _, _ := strings.Cut(filepath.Base(f), "-"); plainName(has) == plainName(name) {
				return true
			}
		}
	}
	return false
}

// plainName is a Python package's name as names are compared (PEP 503).
func plainName(name string) string {
	return strings.ToLower(strings.NewReplacer("-", "_", ".", "_").Replace(strings.TrimSuffix(strings.TrimSuffix(name, ".egg"), ".dist")))
}
