package roottest

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	words "github.com/chatd/chatd/internal/secret"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// realClient is a program as Debian has it, that knows nothing of chatd.
type realClient struct {
	name  string
	needs []string // files of the host
	// command asks HOST, which is to and then a name that is not listed; PORT is its port.
	command, to string
	port        uint16
	want        string // what it prints
	refused     string // what it says of a name that it cannot look up
}

const (
	python  = "/usr/bin/python3"
	git     = "/usr/bin/git"
	plainly = `git -c user.name=a -c user.email=a@example.test `
)

// worksIn clones, commits and pushes.
func worksIn(clone string) string {
	options, _, _ := strings.Cut(clone, "clone")
	return `rm -rf w && git ` + clone + ` w && cd w && ` + plainly +
		`commit -q --allow-empty -m x && git ` + options +
		`push -q -f origin HEAD:refs/heads/work && git rev-parse HEAD`
}

// basic is a credential helper of git: the password is the placeholder in the environment.
const basic = `-c credential.helper='!f() { echo username=git; echo "password=$GIT_TOKEN"; }; f' `

var realClients = []realClient{
	{"ssh", []string{"/usr/bin/ssh", "/usr/sbin/sshd"}, `echo over-ssh | ssh git@HOST 'id -un; cat'`,
		"git.example.test", 22, "git\nover-ssh", "Could not resolve hostname HOST"},
	{"git over ssh", []string{git, "/usr/bin/ssh", "/usr/sbin/sshd"},
		worksIn(`clone -q ssh://git@HOST/~/repo.git`), "git.example.test", 22, "",
		"Could not resolve hostname HOST"},
	{"git, as scp writes it", []string{git, "/usr/bin/ssh", "/usr/sbin/sshd"},
		worksIn(`clone -q git@HOST:repo.git`), "git.example.test", 22, "",
		"Could not resolve hostname HOST"},
	{"git over HTTPS with a secret", []string{git},
		worksIn(basic + `clone -q https://HOST:PORT/repo.git`), "git.example.test", 8443, "",
		"Could not resolve host: HOST"},
	{"scp", []string{"/usr/bin/scp", "/usr/sbin/sshd"}, `scp git@HOST:repo.git/HEAD head && ` +
		`cat head`, "git.example.test", 22, "ref: refs/heads/", "Could not resolve hostname HOST"},
	{"redis-cli", []string{"/usr/bin/redis-cli"},
		`redis-cli -h HOST set color blue && redis-cli -h HOST get color`, "db.example.test", 6379,
		"OK\nblue", "Could not connect to Redis at HOST:6379"},
	{"npm", []string{"/usr/bin/npm"}, `mkdir -p n && cd n && npm install --fetch-retries 0 ` +
		`--registry https://HOST:PORT/ left-test && node -p 'require("left-test")'`,
		"npm.example.test", 8443, "npm installed it", "getaddrinfo ENOTFOUND HOST"},
	{"pip", []string{"/usr/bin/pip"}, `pip install --retries 0 -i https://HOST:PORT/simple ` +
		`left-test && ` + python + ` -c 'import left_test; print(left_test.said)'`,
		"pypi.example.test", 8443, "pip installed it", "No matching distribution found"},
	{"apt-get", []string{"/usr/bin/apt-get", "/usr/bin/dpkg-deb"}, aptGet,
		"mirror.example.test", 8081, "apt fetched it", "Could not resolve 'HOST'"},
	{"curl", []string{"/usr/bin/curl"}, `curl -sS https://HOST:PORT/x`, "web.example.test", 8443,
		"outside heard GET /x HTTP/2.0", "Could not resolve host: HOST"},
	{"Python urllib", []string{python}, python + ` -c 'import urllib.request as u
print(u.urlopen("https://HOST:PORT/x").read().decode())'`, "web.example.test", 8443,
		"outside heard GET /x HTTP/1.1", "Name or service not known"},
	{"Python requests", []string{python, "/usr/lib/python3/dist-packages/requests"},
		python + ` -c 'import requests; print(requests.get("https://HOST:PORT/x").text)'`,
		"web.example.test", 8443, "outside heard GET /x HTTP/1.1", "Name or service not known"},
	{"200 names at once", []string{python}, python + ` -c 'import socket, threading
said = []
def look():
    try: socket.getaddrinfo("HOST", PORT); said.append("found")
    except OSError as e: said.append(e.strerror)
all = [threading.Thread(target=look) for _ in range(200)]
[t.start() for t in all]; [t.join() for t in all]
print(said.count("found"), set(said)); exit(set(said) != {"found"})'`, "web.example.test", 8443,
		"200 {", "Name or service not known"},
	{"Node fetch", []string{"/usr/bin/node"},
		`node -e 'fetch("https://HOST:PORT/x").then(r => r.text()).then(console.log)'`,
		"web.example.test", 8443, "outside heard GET /x HTTP/1.1", "ENOTFOUND HOST"},
	{"Node HTTP/2", []string{"/usr/bin/node"}, `node -e 'const c = require("http2").connect(` +
		`"https://HOST:PORT"); const r = c.request({":path": "/x"}); r.setEncoding("utf8"); ` +
		`r.on("data", console.log); r.on("end", () => c.close())'`, "web.example.test", 8443,
		"outside heard GET /x HTTP/2.0", "ENOTFOUND HOST"},
	{"WebSocket over TLS", []string{python, "/usr/lib/python3/dist-packages/websockets"},
		webSocket("wss"), "web.example.test", 8443, "outside heard hello", "not known"},
	{"WebSocket", []string{python, "/usr/lib/python3/dist-packages/websockets"}, webSocket("ws"),
		"web.example.test", 8081, "outside heard hello", "not known"},
}

func webSocket(scheme string) string {
	return python + ` -c 'import asyncio, websockets
async def main():
    async with websockets.connect("` + scheme + `://HOST:PORT/ws") as w:
        await w.send("hello")
        print(await w.recv())
asyncio.run(main())'`
}

// aptGet looks into a mirror, with lists, cache and settings in the home, and unpacks a package.
const aptGet = `mkdir -p apt/lists/partial apt/cache/archives/partial && cd apt && : >status &&
echo 'deb [trusted=yes] http://HOST:PORT/ ./' >sources.list && cat >conf <<END
Dir::Etc::sourcelist "$PWD/sources.list"; Dir::Etc::sourceparts "-"; Dir::State "$PWD";
Dir::State::status "$PWD/status"; Dir::Cache "$PWD/cache"; APT::Update::Error-Mode "any";
Acquire::Retries "0";
END
apt-get -qq -c conf update && apt-get -qq -c conf download left-test &&
dpkg-deb -x left-test_*.deb tree && cat tree/left-test`

// at is the command for a host; by its full name a program has no shim.
func (c realClient) at(host string) string {
	return strings.NewReplacer("HOST", host, "PORT", portOf(c.port)).Replace(c.command)
}

func portOf(n uint16) string { return strconv.Itoa(int(n)) }

// withClients are options whose profile named lists what real clients ask.
func withClients(t *testing.T) provision.Options {
	opt, _ := withSecret(t, "git.example.test:22", "git.example.test:8443", "npm.example.test:8443",
		"pypi.example.test:8443", "mirror.example.test:8081", "db.example.test:6379",
		"web.example.test:8443", "web.example.test:8081", "proxy.example.test:3128",
		outsideAddr+":3128", "api.example.test:8443")
	file := filepath.Join(filepath.Dir(opt.State), "token")
	must.Do(t, os.WriteFile(file, []byte(gitToken), 0o600))
	header := must.Get(words.ParseHeader("Authorization: Basic git:$"))(t)
	opt.Secrets["git"] = words.Spec{File: file, Hosts: parsedAllows(t, "git.example.test:8443"),
		Header: header, Env: "GIT_TOKEN"}
	edit(opt, "named", func(p *chat.Profile) {
		p.Secrets, p.Limits.MemoryMax, p.Guard = []string{"api", "git"}, 1<<30, chat.DefaultGuard()
		p.EgressMayAdd = parsedAllows(t, "*.example.test:22")
	})
	return opt
}

// TestClients: programs as Debian has them reach what is listed, by name and with no setting, and
// nothing else; what their shims and explain say of it is what they then meet.
func TestClients(t *testing.T) {
	s := newServers(t)
	m := open(t, withClients(t))
	a := inmateOf(t, m, "clients", "named")
	if s.open["22"] != nil {
		s.welcome(t, a)
	}
	var tried []realClient
	for _, c := range realClients {
		t.Run(c.name, func(t *testing.T) {
			for _, file := range c.needs {
				if _, err := os.Stat(file); err != nil {
					t.Logf("the host has no %s", file)
					return
				}
			}
			c.works(t, s, a)
			c.isRefused(t, a)
			tried = append(tried, c)
		})
	}
	t.Run("told", func(t *testing.T) {
		for _, c := range tried {
			to := net.JoinHostPort(c.to, portOf(c.port))
			until(t, to+" is told", func() bool {
				e := told(egressLog(t, m, a.ID), chat.EgressAllowed, to)
				return e.Sent > 0 && e.Received > 0
			})
		}
		if len(tried) > 0 {
			until(t, "the refused name is told", func() bool {
				return told(egressLog(t, m, a.ID), chat.EgressRefused, "other.example.test").Count > 0
			})
		}
	})
}

func (c realClient) works(t *testing.T, s *servers, a inmate) {
	r := a.line(t, c.at(c.to))
	if r.Exit != 0 || !strings.Contains(r.Stdout, c.want) {
		t.Errorf("exit %d, %q, %q, want %q", r.Exit, r.Stdout, r.Stderr, c.want)
		return
	}
	if strings.Contains(c.command, "push") {
		repo := map[uint16]string{22: "home/repo.git", 8443: "repo.git"}[c.port]
		if head := s.head(t, repo); head != strings.TrimSpace(r.Stdout) {
			t.Errorf("the server has %s, the chat pushed %s", head, r.Stdout)
		}
	}
	e := explained(t, a, c.to, c.port)
	expect.True(t, e.Verdict == "allow", "explain of what works: %+v", e)
}

// isRefused asks a name that is not listed: by its shim, if there is one, and by PATH without. The
// program says what the network told it.
func (c realClient) isRefused(t *testing.T, a inmate) {
	const other = "other.example.test"
	e := explained(t, a, other, c.port)
	expect.True(t, e.Verdict == "deny", "explain of what is refused: %+v", e)
	command := c.at(other)
	want := strings.ReplaceAll(c.refused, "HOST", other)
	for _, path := range []string{"", "PATH=/usr/bin; "} {
		a.sh(t, "rm -rf n apt .local/lib/python3*")
		r := a.line(t, path+command)
		if out := r.Stdout + r.Stderr; r.Exit == 0 || !strings.Contains(out, want) {
			t.Errorf("%s%s: exit %d, %q, want %q", path, command, r.Exit, out, want)
		}
	}
}

// line is a shell command in the chat, on a machine of any speed.
func (i inmate) line(t *testing.T, command string) chat.RunResult {
	t.Helper()
	spec := chat.RunSpec{Command: command, Timeout: tryTimeout}
	return must.Get(i.m.Run(operator(t.Context()), i.ID, spec))(t)
}

func explained(t *testing.T, a inmate, host string, port uint16) chat.Explained {
	t.Helper()
	return must.Get(a.m.Explain(operator(t.Context()), a.ID, chat.Question{Host: host, Port: port}))(t)
}
