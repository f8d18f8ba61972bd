package wrapper

import (
	"path/filepath"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/shims"
)

// TestShimsOfANetworkOwn: names and addresses are checked as chatd-egress decides them, with their
// ports, also those of proxies and of the registries that a command does not name.
func TestShimsOfANetworkOwn(t *testing.T) {
	p := shims.ShimPolicy{Home: t.TempDir(), Guard: chat.Guard{}, Network: chat.NetworkOwn}
	p.Egress = allow(t, "api.example.com:443", "*.example.org:443", "git.example.com:22",
		"203.0.113.5:443", "10.0.0.0/8:8080", "udp:time.example.com:443", "proxy.corp:3128",
		"[2001:db8::1]:22")
	for _, c := range []struct {
		env, line string
		refused   string // what the reason names; empty for what runs
	}{
		{"", "curl https://api.example.com/x", ""}, {"", "curl https://API.Example.com./x", ""},
		{"", "curl api.example.com", "api.example.com:80 is not in the profile's egress"},
		{"", "curl https://api.example.com:8443/x", "api.example.com:8443 is not in"},
		{"", "curl https://api.example.com.evil/x", "api.example.com.evil:443 is not in"},
		{"", "curl https://example.org/x", "example.org:443"},
		{"", "curl https://a.b.example.org/x", ""},
		{"", "curl https://notexample.org/x", "notexample.org:443"},
		{"", "curl https://time.example.com/x", "time.example.com:443"}, // UDP alone
		{"", "curl ftp://api.example.com/x", "api.example.com:21"},
		{"", "curl odd://api.example.com/x", ""},
		{"", "curl odd://other.example.com/x", "other.example.com is not in"},
		{"", "git clone https://api.example.com/x", ""},
		{"", "git clone https://github.com/x/y", "github.com:443"},
		{"", "git clone ssh://git@git.example.com/x", ""}, {"", "ssh git.example.com", ""},
		{"", "ssh -p 2222 git.example.com", "git.example.com:2222"},
		{"", "nc git.example.com 22", ""},
		{"", "curl https://203.0.113.5/x", ""}, {"", "curl http://203.0.113.5/x", "203.0.113.5:80"},
		{"", "curl http://10.1.2.3:8080/x", ""}, {"", "curl http://10.1.2.3/x", "10.1.2.3:80"},
		{"", "curl http://[::ffff:10.1.2.3]:8080/x", ""}, {"", "ssh 2001:db8::1", ""},
		{"", "curl http://localhost:1/x", ""}, {"", "curl http://a.localhost:1/x", ""},
		{"", "curl http://[::1]/x", ""},
		{"", "curl http://evil-localhost/x", "evil-localhost:80"},
		// Not read here: a name that curl writes as xn--, and an address in one number.
		{"", "curl https://bücher.example/x", ""}, {"", "curl http://2130706433/x", ""},
		{"", "npm install lodash", "registry.npmjs.org:443 is not in the profile's egress"},
		{"", "pip install absent", "pypi.org:443 is not in the profile's egress"},
		{"", "npm install --registry https://npm.example.org/ lodash", ""},
		{"PIP_INDEX_URL=https://pypi.example.org/simple", "pip install absent", ""},
		// chatd-egress lets no request for another host pass to a name; it does not read TLS and SOCKS.
		{"https_proxy=http://proxy.corp:3128", "pip install absent",
			"by the proxy proxy.corp:3128, which is listed by name"},
		{"https_proxy=proxy.corp", "pip install absent", "proxy.corp, which is listed by name"},
		{"https_proxy=https://proxy.corp:3128", "pip install absent", ""},
		{"all_proxy=socks5h://proxy.corp:3128", "curl https://github.com/x", ""},
		{"https_proxy=http://localhost:3128", "pip install absent", ""},
		{"https_proxy=http://203.0.113.5:443", "pip install absent", ""},
		{"https_proxy=http://proxy.corp:8080", "curl https://api.example.com/x",
			"proxy.corp:8080 is not in"},
		{"https_proxy=http://other.corp:3128", "npm install lodash",
			"by the proxy other.corp: other.corp:3128"},
	} {
		checkShim(t, p, c.env, c.line, c.refused)
	}
	// A metadata service needs an entry of its own, and a wide entry opens public addresses alone.
	p.Egress = allow(t, "0.0.0.0/0:80", "169.254.0.0/16:80")
	checkShim(t, p, "", "curl http://203.0.113.5/x", "")
	checkShim(t, p, "", "curl http://10.1.2.3/x", "10.1.2.3:80")
	checkShim(t, p, "", "curl http://169.254.169.254/x", "169.254.169.254:80")
	checkShim(t, p, "", "curl http://api.example.com/x", "api.example.com:80")
	p.Egress = nil
	checkShim(t, p, "", "curl http://api.example.com/x", "api.example.com:80")
}

// TestShimsReadOptions: the value of an option is no host, and where an option or a setting names
// another host than the command line, the shim refuses nothing.
func TestShimsReadOptions(t *testing.T) {
	home := t.TempDir()
	p := shims.ShimPolicy{Home: home, Guard: chat.Guard{}, Network: chat.NetworkOwn,
		Egress: allow(t, "a.example:443", "ssh.example:22", "ssh.example:2222")}
	const other = "other.example"
	for _, c := range []struct{ line, refused string }{
		{"curl --cookie-jar jar.txt --connect-timeout 2.5 --cacert my.pem https://a.example/", ""},
		{"curl --upload-file a.txt --user me:1234 https://a.example/", ""},
		{"curl -sSO https://other.example/x", other}, {"curl -o a.b https://a.example/", ""},
		{"curl -oa.b https://other.example/", other}, {"curl --url https://other.example/", other},
		{"curl --unix-socket s http://docker/x", ""}, {"curl http://docker/x", "docker:80"},
		{"curl --connect-to ::a.example:443 https://other.example/", ""},
		{"wget --output-document a.txt https://a.example/", ""},
		{"wget --post-file a.txt https://other.example/", other},
		{"ssh -p2222 ssh.example", ""}, {"ssh -p22 ssh.example", ""}, {"ssh -p23 ssh.example", ":23"},
		{"ssh -lbob other.example", other}, {"ssh -vp 2222 u@ssh.example ls", ""},
		{"ssh -oBatchMode=yes other.example", other}, {"scp -P2222 a ssh.example:b", ""},
		{"scp -P 23 a ssh.example:b", ":23"}, {"sftp -P23 ssh.example", ":23"},
		{"ssh -o HostName=ssh.example work", ""}, {"ssh -oport=2222 other.example", ""},
		{"ssh -J ssh.example other.example", ""}, {"ssh -F conf work", ""},
		// git starts ssh, whose shim checks.
		{"git clone ssh://other.example/x", ""}, {"npm install git+ssh://git@other.example/x", ""},
		{"git clone https://other.example/x", other}, {"git fetch https://other.example/x", other},
		{"git -C d clone -b main https://other.example/x", other},
		{"git remote add origin https://other.example/x", ""},
		{"git commit -m https://other.example/x", ""}, {"git log -S https://other.example/x", ""},
		{"git -c url.https://a.example/.insteadOf=https://other.example/ " +
			"clone https://other.example/x", ""},
	} {
		checkShim(t, p, "", c.line, c.refused)
	}
	checkShim(t, p, "GIT_CONFIG_COUNT=1", "git clone https://other.example/x", "")
	writeSetting(t, filepath.Join(home, ".gitconfig"), "[url \"https://a.example/\"]\n"+
		"\tinsteadOf = https://other.example/\n")
	checkShim(t, p, "", "git clone https://other.example/x", "")
	writeSetting(t, filepath.Join(home, ".ssh/config"), "Host *\n\tUser bob\n")
	checkShim(t, p, "", "ssh other.example", other)
	writeSetting(t, filepath.Join(home, ".ssh/config"), "Host work\n\tHostName ssh.example\n")
	checkShim(t, p, "", "ssh work", "")
	checkShim(t, p, "", "scp a work:b", "")
}

// TestRegistryListed: with npm's and pip's own registries in egress their defaults are let run.
func TestRegistryListed(t *testing.T) {
	p := shims.ShimPolicy{Home: t.TempDir(), Guard: chat.Guard{}, Network: chat.NetworkOwn,
		Egress: allow(t, "registry.npmjs.org:443")}
	checkShim(t, p, "", "npm install lodash", "")
	p.Egress = allow(t, "pypi.org:443")
	checkShim(t, p, "", "pip install absent", "")
	checkShim(t, p, "", "npm install lodash", "registry.npmjs.org:443")
}
