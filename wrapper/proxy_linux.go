package wrapper

import (
	"cmp"
	"io"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
)

// option is what the options of these names say: the last value, if there is one. A name is a
// letter or a long option; a letter's value may be in its own word, also behind other letters.
func (s shim) option(names ...string) (value string, given bool) {
	values := s.options(s.argv[1:], names)
	if len(values) == 0 {
		return "", false
	}
	return values[len(values)-1], true
}

// options are the values of all options of these names; empty ones of those that have none.
func (s shim) options(args, names []string) (values []string) {
	next := func(i int) string {
		if i+1 < len(args) {
			return args[i+1]
		}
		return ""
	}
	for i, a := range args {
		name, inside, has := strings.Cut(a, "=")
		switch {
		case a == "--":
			return values
		case strings.HasPrefix(a, "--") && slices.Contains(names, name):
			if !has {
				inside = next(i)
			}
			values = append(values, inside)
		case len(a) > 1 && a[0] == '-' && a[1] != '-':
			if at := s.letterIn(a, names); at > 0 {
				values = append(values, cmp.Or(a[at+1:], next(i)))
			}
		}
	}
	return values
}

// letterIn is where one of these letters stands in a word of options, before any other that
// has the rest of the word as its value; 0 if none does.
func (s shim) letterIn(word string, names []string) int {
	for at := 1; at < len(word); at++ {
		if slices.Contains(names, word[at:at+1]) {
			return at
		}
		if strings.IndexByte(lettersValued[s.name], word[at]) >= 0 {
			return 0
		}
	}
	return 0
}

// proxy is what stands between a program and the hosts that it names.
type proxy struct {
	url    string // empty for none
	except string // hosts that are reached without
	// unreported: a file of the chat's own says something about proxies, and it is not read here.
	unreported bool
}

// proxyFor is the proxy that a program takes for a host, by its options and the environment.
func (s shim) proxyFor(h host) proxy {
	p, given := s.proxyOption(h)
	if !given {
		p.url = s.first(proxyVariables(s.name, h.scheme)...)
	}
	if s.name == "wget" && s.wgetWithout() {
		return proxy{}
	}
	if p.except == "" {
		p.except = s.first("no_proxy", "NO_PROXY")
	}
	p.unreported = !given && p.url == "" && s.mentions("proxy")
	return p
}

func (s shim) wgetWithout() bool {
	_, without := s.option("--no-proxy")
	use, _ := s.assigned("use_proxy", "e", "--execute")
	return without || use == "no" || use == "off"
}

// proxyOption is the proxy of the command line, if it names one; an empty one means none.
func (s shim) proxyOption(h host) (p proxy, given bool) {
	p.except, _ = s.option("--noproxy")
	switch s.name {
	case "curl":
		if p.url, given = s.option("--preproxy"); !given {
			p.url, given = s.option("x", "--proxy", "--proxy1.0", "--socks4", "--socks4a", "--socks5", "--socks5-hostname")
		}
	case "wget":
		p.url, given = s.assigned(h.scheme+"_proxy", "e", "--execute")
	case "git":
		p.url, given = s.assigned("http.proxy", "c", "--config")
	case "npm":
		p.url, given = s.option("--https-proxy")
		if !given {
			p.url, given = s.option("--proxy")
		}
	case "pip", "pip3":
		p.url, given = s.option("--proxy")
	}
	return p, given
}

// assigned is the last value that options of these names give to a key, as in -c http.proxy=URL.
func (s shim) assigned(key string, names ...string) (value string, given bool) {
	for _, text := range s.options(s.argv[1:], names) {
		if name, v, has := strings.Cut(text, "="); has && strings.EqualFold(strings.TrimSpace(name), key) {
			value, given = strings.TrimSpace(v), true
		}
	}
	return value, given
}

// proxyVariables are the variables that name a program's proxy for a scheme, in the order in
// which it asks them.
func proxyVariables(name, scheme string) []string {
	upper := strings.ToUpper(scheme)
	switch name {
	case "wget":
		return []string{scheme + "_proxy"}
	case "npm":
		return strings.Fields("npm_config_https_proxy NPM_CONFIG_HTTPS_PROXY npm_config_proxy NPM_CONFIG_PROXY HTTPS_PROXY https_proxy HTTP_PROXY http_proxy PROXY proxy")
	case "pip", "pip3":
		return []string{"PIP_PROXY", scheme + "_proxy", upper + "_PROXY", "all_proxy", "ALL_PROXY"}
	case "curl", "git":
		if scheme == "http" { // never the upper one: a CGI program has it from its caller
			return []string{"http_proxy", "all_proxy", "ALL_PROXY"}
		}
		return []string{scheme + "_proxy", upper + "_PROXY", "all_proxy", "ALL_PROXY"}
	}
	return nil
}

// first is the first of these variables that says something.
func (s shim) first(names ...string) string {
	for _, name := range names {
		if v := s.variable(name); v != "" {
			return v
		}
	}
	return ""
}

func (s shim) variable(name string) string {
	if s.env == nil {
		return ""
	}
	return s.env(name)
}

// via is the host that a program opens a connection to for another: a proxy, or that one. ok is
// false where this is unknown.
func (s shim) via(h host) (to host, isProxy, ok bool) {
	if h.scheme == "" || h.scheme == "git" {
		return h, false, true
	}
	p := s.proxyFor(h)
	switch {
	case p.unreported:
		return h, false, false
	case p.url == "" || excepted(p.except, h):
		return h, false, true
	}
	text := p.url
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return h, false, false // the program says what is wrong with it
	}
	to.name, to.scheme = u.Hostname(), u.Scheme
	if n, err := strconv.ParseUint(u.Port(), 10, 16); err == nil {
		to.port = uint16(n)
	}
	return to, true, true
}

// proxyByName reports whether a proxy of HTTP is listed by its name alone: chatd-egress then reads
// the requests there, and lets none pass that is to another host.
func (s shim) proxyByName(to host) bool {
	_, err := netip.ParseAddr(to.name)
	name, odd := chat.CheckHost(to.name)
	if err == nil || odd != nil || isOwn(name) || to.scheme != "http" {
		return false
	}
	return opened(s.policy.Egress, to)
}

// excepted reports whether a list as no_proxy has it names the host.
func excepted(list string, h host) bool {
	addr, addrErr := netip.ParseAddr(h.name)
	for _, e := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' }) {
		name, port, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(e, "*"), "."), ":")
		within, err := netip.ParsePrefix(e)
		switch {
		case e == "*", addrErr == nil && err == nil && within.Contains(addr), strings.EqualFold(e, h.name):
			return true
		case port != "" && port != strconv.Itoa(int(h.port)) || name == "":
		case strings.EqualFold(name, h.name), addrErr != nil && strings.HasSuffix(strings.ToLower(h.name), "."+strings.ToLower(name)):
			return true
		}
	}
	return false
}

// settings are the files in which a chat may say what a program's options and variables say
// otherwise: of the home (~), of the working directory (.), or the host's.
var settings = map[string][]string{
	"curl": {"~/.curlrc", "~/.config/curlrc"}, "wget": {"~/.wgetrc", "/etc/wgetrc"}, "git": {"~/.gitconfig", "~/.config/git/config", "./.git/config"},
	"npm": {"~/.npmrc", "./.npmrc"}, "pip": {"~/.config/pip/pip.conf", "~/.pip/pip.conf", "/etc/pip.conf"},
	"ssh": {"~/.ssh/config"}, "scp": {"~/.ssh/config"}, "sftp": {"~/.ssh/config"},
}

// mentions reports whether one of a program's files of settings, here or in the home, has a
// line with one of these words that is no comment.
func (s shim) mentions(words ...string) bool {
	files := settings[strings.TrimSuffix(s.name, "3")]
	return slices.ContainsFunc(files, func(f string) bool {
		for line := range strings.Lines(readSettings(filerules.Fold(s.policy.Home, s.cwd, f))) {
			line = strings.ToLower(strings.TrimSpace(line))
			comment := strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";")
			if !comment && slices.ContainsFunc(words, func(w string) bool { return strings.Contains(line, w) }) {
				return true
			}
		}
		return false
	})
}

// maxSettings bounds what is read of a file of settings.
const maxSettings = 64 << 10

// readSettings is the text of a file, as far as it is one and can be read.
func readSettings(name string) string {
	if info, err := os.Stat(name); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	f, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSettings))
	if err != nil {
		return ""
	}
	return string(b)
}
