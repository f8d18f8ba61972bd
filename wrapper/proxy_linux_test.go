package wrapper

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/shims"
)

// TestShimsGoByProxies: what is checked is where the program opens a connection to, which is
// the proxy of its options or its environment, where it has one.
func TestShimsGoByProxies(t *testing.T) {
	const listed, other = "http://203.0.113.5:3128", "http://198.51.100.1:3128"
	p := shims.ShimPolicy{Home: t.TempDir(), Guard: chat.Guard{}, Network: chat.NetworkOwn, Egress: allow(t, "203.0.113.5:3128", "192.0.2.7:443")}
	for _, c := range []struct {
		env, line string
		refused   string // what the reason names; empty for what runs
	}{
		{"", "curl https://example.com/x", "example.com"},
		{"", "curl -x " + listed + " https://example.com/x", ""}, {"", "curl -sSx" + listed + " https://example.com/x", ""},
		{"", "curl --proxy " + listed + " https://example.com/x", ""}, {"", "curl --socks5-hostname 203.0.113.5:3128 https://example.com/x", ""},
		{"", "curl -x " + other + " https://192.0.2.7/x", "198.51.100.1:3128"}, {"", "curl --preproxy " + other + " -x " + listed + " https://192.0.2.7/x", "198.51.100.1:3128"},
		{"", "curl -ofox.txt https://192.0.2.7/x", ""}, {"", "curl -o fox https://192.0.2.7/x", ""}, {"", "curl --header x:http://1.2.3.4 https://192.0.2.7/x", ""},
		{"https_proxy=" + listed, "curl https://example.com/x", ""}, {"HTTPS_PROXY=" + listed, "curl https://example.com/x", ""},
		{"https_proxy=" + other, "curl https://192.0.2.7/x", "198.51.100.1:3128"}, {"https_proxy=" + other, "curl -x  https://192.0.2.7/x", ""},
		{"https_proxy=" + other + " no_proxy=192.0.2.0/24", "curl https://192.0.2.7/x", ""}, {"https_proxy=" + other, "curl --noproxy * https://192.0.2.7/x", ""},
		{"https_proxy=" + listed + " no_proxy=.example.com,x", "curl https://a.example.com/x", "a.example.com"}, {"https_proxy=" + listed + " no_proxy=ample.com", "curl https://example.com/x", ""},
		{"HTTP_PROXY=" + listed, "curl http://example.com/x", "example.com"}, {"all_proxy=" + listed, "curl http://example.com/x", ""},
		{"https_proxy=http://127.0.0.1:8080", "curl https://example.com/x", ""}, {"https_proxy=http://proxy.corp:3128", "curl https://192.0.2.7/x", "proxy.corp"},
		{"http_proxy=" + listed, "wget http://example.com/x", ""}, {"HTTP_PROXY=" + listed, "wget http://example.com/x", "example.com"},
		{"http_proxy=" + listed, "wget --no-proxy http://example.com/x", "example.com"}, {"", "wget -e http_proxy=" + listed + " http://example.com/x", ""},
		{"https_proxy=" + other, "wget -e use_proxy=no https://192.0.2.7/x", ""},
		{"", "wget -e https_proxy=" + listed + " http://example.com/x", "example.com"},
		{"", "git -c http.proxy=" + listed + " clone https://example.com/x", ""}, {"", "git clone https://example.com/x", "example.com"},
		{"all_proxy=" + listed, "git clone https://example.com/x", ""}, {"all_proxy=" + listed, "ssh u@198.51.100.1", "198.51.100.1:22"},
	} {
		checkShim(t, p, c.env, c.line, c.refused)
	}
	// A file of settings that speaks of proxies is the program's to read.
	writeSetting(t, filepath.Join(p.Home, ".curlrc"), "# proxy = no\n")
	checkShim(t, p, "", "curl https://example.com/x", "example.com")
	writeSetting(t, filepath.Join(p.Home, ".curlrc"), "proxy = "+listed+"\n")
	checkShim(t, p, "", "curl https://example.com/x", "")
}

// TestShimsCheckRegistries: npm and pip are refused immediately where what they would fetch is in a
// registry that cannot be reached, their own or another; what they need not fetch they do.
func TestShimsCheckRegistries(t *testing.T) {
	home := t.TempDir()
	p := shims.ShimPolicy{Home: home, Guard: chat.Guard{}, Network: chat.NetworkOwn, Egress: allow(t, "203.0.113.5:443")}
	writeSetting(t, filepath.Join(home, "need.txt"), "# a\nabsent>=2\n")
	writeSetting(t, filepath.Join(home, ".local/lib/python3.11/site-packages/Py_Has-1.0.dist-info/METADATA"), "")
	writeSetting(t, filepath.Join(home, "project/package.json"), `{"dependencies": {"lodash": "^4"}}`)
	writeSetting(t, filepath.Join(home, "local/package.json"), `{"dependencies": {"mine": "file:../mine"}}`)
	const npm, pypi = "registry.npmjs.org", "pypi.org"
	for _, c := range []struct{ env, line, refused string }{
		{"", "npm install lodash", npm}, {"", "npm i -g @scope/tool@2", npm}, {"", "npm view lodash", npm}, {"", "npm install", ""}, {"", "npm run build", ""}, {"", "npm --version", ""},
		{"", "npm install ./mine", ""}, {"", "npm install -g ../mine.tgz", ""}, {"", "npm install --offline lodash", ""}, {"", "npm install mine@file:../mine", ""},
		{"PWD=project", "npm install", npm}, {"PWD=project", "npm ci", npm}, {"PWD=local", "npm install", ""},
		{"", "npm install --registry https://203.0.113.5/ lodash", ""}, {"", "npm install --registry=https://203.0.113.6/ lodash", "203.0.113.6:443"},
		{"npm_config_registry=https://203.0.113.5/", "npm install lodash", ""}, {"NPM_CONFIG_REGISTRY=https://203.0.113.6/", "npm install lodash", "203.0.113.6:443"},
		{"HTTPS_PROXY=http://203.0.113.5:443", "npm install lodash", ""}, {"npm_config_https_proxy=http://203.0.113.6:443", "npm install lodash", "203.0.113.6:443"},
		{"", "pip install absent", pypi}, {"", "pip3 install absent==2 -q", pypi}, {"", "pip install -r need.txt", pypi}, {"", "pip download x", pypi}, {"", "pip list", ""},
		{"", "pip install py-has", ""}, {"", "pip install -U py-has", pypi}, {"", "pip install py.has>=1", ""}, {"", "pip install ./mine", ""}, {"", "pip install mine-1.0-py3-none-any.whl", ""},
		{"", "pip install --no-index -f wheels absent", ""}, {"PIP_NO_INDEX=1", "pip install absent", ""}, {"", "pip install -i https://203.0.113.5/simple absent", ""},
		{"", "pip install --index-url https://203.0.113.6/simple absent", "203.0.113.6:443"}, {"PIP_INDEX_URL=https://203.0.113.6/simple", "pip install absent", "203.0.113.6:443"},
		{"", "pip install --proxy http://203.0.113.5:443 absent", ""}, {"https_proxy=http://203.0.113.6:443", "pip install absent", "203.0.113.6:443"},
	} {
		checkShim(t, p, c.env, c.line, c.refused)
	}
	writeSetting(t, filepath.Join(home, ".npmrc"), "registry=https://203.0.113.5/\n")
	checkShim(t, p, "", "npm install lodash", "")
	none := p
	none.Network = chat.NetworkNone
	checkShim(t, none, "", "pip install absent", "no network")
}

// checkShim checks a line in an environment; PWD is where, below the home. Two spaces are an
// empty argument.
func checkShim(t *testing.T, p shims.ShimPolicy, env, line, refused string) {
	t.Helper()
	vars := map[string]string{}
	for _, v := range strings.Fields(env) {
		name, value, _ := strings.Cut(v, "=")
		vars[name] = value
	}
	s, err := newShim(p, strings.Split(line, " "), filepath.Join(p.Home, vars["PWD"]))
	if err != nil {
		t.Fatal(err)
	}
	s.env = func(name string) string { return vars[name] }
	d, err := s.check()
	if err != nil || (d.rule == "egress") != (refused != "") || !strings.Contains(d.reason, refused) {
		t.Errorf("%s %s: %+v, %v, want it to name %q", env, line, d, err, refused)
	}
}

func writeSetting(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
