package roottest

import (
	"os"
	"strings"
	"testing"
)

// agreement is a command line whose shim and whose connection say the same.
type agreement struct {
	name    string
	needs   string
	command string
	reached string // what it prints if it gets there; empty if it does not
	reason  string // of the shim, where it does not
}

const (
	byAddress = "http://" + outsideAddr + ":3128"
	npmListed = `rm -rf n .npm; mkdir n; cd n; npm install --fetch-retries 0 ` +
		`--registry https://npm.example.test:8443/ left-test && node -p 'require("left-test")'`
	pipListed = `pip install --force-reinstall --retries 0 ` +
		`-i https://pypi.example.test:8443/simple left-test`
	webListed = `https://web.example.test:8443/x`
)

var agreements = []agreement{
	{"npm's own registry", "/usr/bin/npm", `npm install --fetch-retries 0 left-test`, "",
		"registry.npmjs.org:443 is not in"},
	{"pip's own index", "/usr/bin/pip", `pip install --retries 0 right-test`, "",
		"pypi.org:443 is not in"},
	{"npm by an unlisted proxy", "/usr/bin/npm",
		`export HTTPS_PROXY=http://other.example.test:3128; ` + npmListed, "",
		"by the proxy other.example.test: other.example.test:3128 is not in"},
	{"pip by an unlisted proxy", "/usr/bin/pip",
		`export HTTPS_PROXY=http://other.example.test:3128; ` + pipListed, "",
		"by the proxy other.example.test: other.example.test:3128 is not in"},
	{"npm by a proxy whose address is listed", "/usr/bin/npm",
		`export HTTPS_PROXY=` + byAddress + `; ` + npmListed, "npm installed it", ""},
	{"pip by a proxy whose address is listed", "/usr/bin/pip",
		`export HTTPS_PROXY=` + byAddress + `; ` + pipListed, "Successfully installed", ""},
	{"an unlisted name by such a proxy", "/usr/bin/curl",
		`https_proxy=` + byAddress + ` curl -sS https://hidden.example.test:8443/x`,
		"outside heard GET /x", ""},
	{"npm by a proxy whose name is listed", "/usr/bin/npm",
		`export HTTPS_PROXY=http://proxy.example.test:3128; ` + npmListed, "",
		"which is listed by name"},
	{"curl by a proxy whose name is listed", "/usr/bin/curl",
		`curl -sSx http://proxy.example.test:3128 ` + webListed, "", "which is listed by name"},
	{"another port of a listed name", "/usr/bin/curl", `curl -sS https://web.example.test:9443/x`,
		"", "web.example.test:9443 is not in"},
	{"options with values that look like hosts", "/usr/bin/curl",
		`curl -sS --cookie-jar jar.txt --connect-timeout 9.5 --dump-header head.txt ` + webListed,
		"outside heard GET /x", ""},
	{"npm on another port", "/usr/bin/npm",
		`npm install --fetch-retries 0 --registry https://npm.example.test:9443/ left-test`, "",
		"npm.example.test:9443 is not in"},
	{"pip on another port", "/usr/bin/pip",
		`pip install --retries 0 -i https://pypi.example.test:9443/simple right-test`, "",
		"pypi.example.test:9443 is not in"},
	{"another port of ssh", "/usr/bin/ssh", `ssh -p2222 git@git.example.test id -un`, "",
		"git.example.test:2222 is not in"},
	{"a host of ~/.ssh/config", "/usr/sbin/sshd", alias + `ssh work id -un`, "git", ""},
	{"git with a host of ~/.ssh/config", "/usr/sbin/sshd",
		alias + `git ls-remote ssh://work/~/repo.git`, "refs/heads/work", ""},
	{"ssh with a host in an option", "/usr/sbin/sshd", `ssh -o HostName=git.example.test ` +
		`-o HostKeyAlias=git.example.test git@work id -un`, "git", ""},
	{"git with another URL in its place", "/usr/bin/git", `git ` + basic +
		`-c url.https://git.example.test:8443/.insteadOf=https://hidden.example.test/ ` +
		`ls-remote https://hidden.example.test/repo.git`, "refs/heads/work", ""},
}

// alias writes settings of ssh.
const alias = `printf 'Host work\nHostName git.example.test\nUser git\n' >~/.ssh/config; ` +
	`trap 'rm ~/.ssh/config' EXIT; `

// shimsAgree runs each with its shim, and by PATH without: the shim refuses what the socket
// refuses, and nothing else.
func shimsAgree(t *testing.T, s *servers, a inmate) {
	for _, c := range agreements {
		t.Run(c.name, func(t *testing.T) {
			if _, err := os.Stat(c.needs); err != nil {
				t.Logf("the host has no %s", c.needs)
				return
			}
			r := a.line(t, "PATH=/usr/bin; "+c.command)
			if got := strings.Contains(r.Stdout, c.reached) && r.Exit == 0; got != (c.reached != "") {
				t.Errorf("without shims: exit %d, %q, %q", r.Exit, r.Stdout, r.Stderr)
			}
			r = a.line(t, c.command)
			if refused := strings.Contains(r.Stderr, "chatd: "); refused == (c.reached != "") ||
				!strings.Contains(r.Stderr, c.reason) {
				t.Errorf("with shims: exit %d, %q, %q", r.Exit, r.Stdout, r.Stderr)
			}
		})
	}
	t.Run("what the chat adds", func(t *testing.T) {
		const ssh = `ssh -o StrictHostKeyChecking=yes git@other.example.test true`
		patchEgress(t, a.m, a.ID, `{"egress_add": ["other.example.test:22"]}`)
		if e := explained(t, a, "other.example.test", 22); e.Verdict != "allow" {
			t.Errorf("explain: %+v", e)
		}
		if r := a.line(t, ssh); !strings.Contains(r.Stderr, "Host key verification failed") {
			t.Errorf("%+v", r)
		}
		patchEgress(t, a.m, a.ID, `{"egress_add": []}`)
		if r := a.line(t, ssh); !strings.Contains(r.Stderr, "chatd: ssh refused") {
			t.Errorf("%+v", r)
		}
	})
}
