package roottest

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	words "github.com/chatd/chatd/internal/secret"
	"github.com/chatd/chatd/netpolicy/gateway"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// secretActs are those of a Go program that knows nothing of chatd.
var secretActs = map[string]act{
	// get URL HEADER VALUE: what the server answers
	"get": func(a []string) (string, error) {
		r := value(http.NewRequest(http.MethodGet, a[0], nil))
		r.Header.Set(a[1], a[2])
		answer := value((&http.Client{Timeout: dialTime}).Do(r))
		defer answer.Body.Close()
		b, err := io.ReadAll(answer.Body)
		return strings.TrimSpace(string(b)), err
	},
}

const (
	secretValue = "sk-roottest-0123456789abcdefghij"
	secretNext  = "sk-roottest-next-9876543210zyxw"
	secretURL   = "https://api.example.test:8443"
)

// apiServer is a server outside that wants a key, and says which it got.
type apiServer struct {
	mu   sync.Mutex
	keys []string
}

// newAPI starts one on port 8443.
func newAPI(t testing.TB, o *internet) *apiServer {
	t.Helper()
	s := &apiServer{}
	serveSecure(t, o, "8443", s, "api.example.test")
	return s
}

// serveSecure serves HTTPS under these names. This host trusts the certificates.
func serveSecure(t testing.TB, o *internet, port string, h http.Handler, names ...string) {
	t.Helper()
	outside := must.Get(gateway.NewAuthority([]byte("outside"), time.Now()))(t)
	config := &tls.Config{NextProtos: []string{"h2", "http/1.1"}}
	for _, name := range names {
		b := must.Get(outside.Issue(name, time.Now()))(t)
		cert := must.Get(tls.X509KeyPair(b, b))(t)
		config.Certificates = append(config.Certificates, cert)
	}
	for _, l := range o.listen(t, port) {
		server := &http.Server{Handler: h, TLSConfig: config, ErrorLog: log.New(io.Discard, "", 0)}
		go func() { _ = server.ServeTLS(l, "", "") }()
		t.Cleanup(func() { _ = server.Close() })
	}
	trustHere(t, outside.Certificate())
}

// trustHere has this host trust one more authority until the test ends.
func trustHere(t testing.TB, pem []byte) {
	t.Helper()
	const bundle = "/etc/ssl/certs/ca-certificates.crt"
	host := must.Get(os.ReadFile(bundle))(t)
	file := filepath.Join(t.TempDir(), "bundle")
	must.Do(t, os.WriteFile(file, append(host, pem...), 0o644))
	must.Do(t, unix.Mount(file, bundle, "", unix.MS_BIND, ""))
	t.Cleanup(func() { must.Do(t, unix.Unmount(bundle, unix.MNT_DETACH)) })
}

// ServeHTTP answers with "ok" if it got the value, and always sends the key back. Below /repo.git
// it is a repository for git.
func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("X-Api-Key")
	s.mu.Lock()
	s.keys = append(s.keys, key)
	s.mu.Unlock()
	ok := key == secretValue || key == secretNext
	w.Header().Set("X-Got", key)
	switch {
	case !ok:
		http.Error(w, "no key "+key, http.StatusForbidden)
	case strings.HasPrefix(r.URL.Path, "/repo.git"):
		fmt.Fprintf(w, "%040d\trefs/heads/%s\n", 7, key)
	default:
		fmt.Fprintf(w, "ok %s %s\n", r.URL.Path, key)
	}
}

// last is the last key that it got.
func (s *apiServer) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.keys) == 0 {
		return ""
	}
	return s.keys[len(s.keys)-1]
}

// withSecret are options in which chats of the profile named have the secret api.
func withSecret(t testing.TB, egress ...string) (provision.Options, *lockedBuffer) {
	t.Helper()
	opt, log := named(t, egress...), &lockedBuffer{}
	opt.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	file := filepath.Join(filepath.Dir(opt.State), "secret")
	writeFile(t, file, secretValue+"\n", 0o600)
	header := must.Get(words.ParseHeader("x-api-key: $"))(t)
	host := must.Get(chat.ParseAllow("api.example.test:8443"))(t)
	opt.Secrets = map[string]words.Spec{"api": {File: file, Hosts: []chat.Allow{host},
		Header: header, Env: "API_KEY"}}
	edit(opt, "named", func(p *chat.Profile) { p.Secrets, p.Commands = []string{"api"}, []string{"*"} })
	return opt, log
}

// TestSecrets: unchanged programs use the placeholder of their environment, and the server gets the
// value, which is nowhere that the chat could look.
func TestSecrets(t *testing.T) {
	api := newAPI(t, newInternet(t))
	opt, log := withSecret(t, "api.example.test:8443", "other.example.test:8443")
	m := open(t, opt)
	a := inmateOf(t, m, "secrets a", "named")
	stars := strings.Repeat("*", len(secretValue))
	for _, c := range clients(a) {
		t.Run(c.name, func(t *testing.T) {
			if c.needs != "" {
				if _, err := os.Stat(c.needs); err != nil {
					t.Logf("the host has no %s", c.needs)
					return
				}
			}
			for range 2 {
				r := run(t, m, a.ID, c.command)
				if out := r.Stdout + r.Stderr; !strings.Contains(out, c.want) ||
					!strings.Contains(out, stars) || strings.Contains(out, secretValue) {
					t.Errorf("%d %q, want %q and asterisks", r.Exit, out, c.want)
				}
			}
			expect.Equal(t, api.last(), secretValue, "the server got")
		})
	}
	t.Run("rotation", func(t *testing.T) { rotate(t, m, a, opt, api) })
	t.Run("another chat", func(t *testing.T) { foreignPlaceholder(t, m, a, api) })
	t.Run("nowhere", func(t *testing.T) { nowhere(t, m, a, opt, log) })
}

type httpClient struct{ name, needs, command, want string }

// clients are what asks for /v1 with the placeholder.
func clients(a inmate) []httpClient {
	return []httpClient{
		{"curl", "/usr/bin/curl", `curl -sS -H "x-api-key: $API_KEY" ` + secretURL + `/v1`,
			"ok /v1 "},
		{"curl HTTP/1.1", "/usr/bin/curl", `curl -sS --http1.1 -H "x-api-key: $API_KEY" ` +
			secretURL + `/v1`, "ok /v1 "},
		{"Python", "/usr/bin/python3", `/usr/bin/python3 -c 'import os, urllib.request as u
r = u.Request("` + secretURL + `/v1", headers={"x-api-key": os.environ["API_KEY"]})
print(u.urlopen(r).read())'`,
			"ok /v1 "},
		{"Node", "/usr/bin/node", `node -e 'fetch("` + secretURL + `/v1", {headers: ` +
			`{"x-api-key": process.env.API_KEY}}).then(r => r.text()).then(console.log)'`,
			"ok /v1 "},
		{"git", "/usr/bin/git", `git -c http.extraHeader="x-api-key: $API_KEY" ls-remote ` +
			secretURL + `/repo.git`, "refs/heads/"},
		{"Go", "", a.program + ` get ` + secretURL + `/v1 x-api-key $API_KEY`, "ok ok /v1 "},
		{"Java", "/usr/bin/java", `cat >T.java <<'END'
import java.net.*; import java.net.http.*;
class T { public static void main(String[] a) throws Exception {
 System.out.println(HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create(
 "` + secretURL + `/v1")).header("x-api-key", System.getenv("API_KEY")).build(),
 HttpResponse.BodyHandlers.ofString()).body()); } }
END
java -Xmx96m -XX:ReservedCodeCacheSize=32m -Xss512k T.java`, "ok /v1 "},
	}
}

// rotate writes another value while the chat is awake.
func rotate(t *testing.T, m *manager, a inmate, opt provision.Options, api *apiServer) {
	file := opt.Secrets["api"].File
	must.Do(t, os.WriteFile(file, []byte(secretNext+"\n"), 0o600))
	must.Do(t, m.ReloadSecrets(t.Context()))
	get := a.program + ` get ` + secretURL + `/v1 x-api-key $API_KEY`
	if out := a.sh(t, get); !strings.HasPrefix(out, "ok ok /v1 ***") || api.last() != secretNext {
		t.Errorf("%q, the server got %q", out, api.last())
	}
	// A file that others may read is not taken; the value stays, and doctor says why.
	must.Do(t, errors.Join(os.WriteFile(file, []byte("sk-roottest-open-000000\n"), 0o600),
		os.Chmod(file, 0o644)))
	must.Do(t, m.ReloadSecrets(t.Context()))
	if a.sh(t, get); api.last() != secretNext {
		t.Errorf("the server got %q", api.last())
	}
	h, err := m.Host(operator(t.Context()))
	expect.True(t, err == nil && strings.Contains(fmt.Sprint(h.Findings), "its mode is 0644"),
		"doctor: %v, %v", h.Findings, err)
	must.Do(t, errors.Join(os.Chmod(file, 0o600), os.WriteFile(file, []byte(secretValue+"\n"), 0o600)))
	must.Do(t, m.ReloadSecrets(t.Context()))
	h, err = m.Host(operator(t.Context()))
	expect.True(t, err == nil && !strings.Contains(fmt.Sprint(h.Findings), "secret"),
		"doctor: %v, %v", h.Findings, err)
}

// foreignPlaceholder: what one chat has is worth nothing in another, and nothing outside of its
// place.
func foreignPlaceholder(t *testing.T, m *manager, a inmate, api *apiServer) {
	b := inmateOf(t, m, "secrets b", "named")
	mine, theirs := a.sh(t, "echo $API_KEY"), b.sh(t, "echo $API_KEY")
	expect.True(t, mine != theirs && strings.HasPrefix(mine, words.Prefix),
		"A has %q and B %q", mine, theirs)
	for what, command := range map[string]string{
		"A's in B":       a.program + ` get ` + secretURL + `/ x-api-key ` + mine,
		"another header": b.program + ` get ` + secretURL + `/ authorization ` + theirs,
		"in the URL":     b.program + ` get ` + secretURL + `/?k=` + theirs + ` x-other y`,
	} {
		command = strings.Replace(command, a.program, b.program, 1)
		out := b.sh(t, command)
		if strings.Contains(out, "ok ok") || strings.Contains(api.last(), secretValue) {
			t.Errorf("%s: %q, the server got %q", what, out, api.last())
		}
	}
	out := b.sh(t, b.program+` get `+secretURL+`/ x-api-key `+theirs)
	expect.True(t, strings.HasPrefix(out, "ok ok"), "control: %q", out)
}

// nowhere looks for the values in all that the chat and the front can see, and in what chatd
// writes.
func nowhere(t *testing.T, m *manager, a inmate, opt provision.Options, log *lockedBuffer) {
	plan := must.Get(m.Plan(operator(t.Context()), a.ID))(t)
	shown := must.Get(m.Get(operator(t.Context()), a.ID))(t)
	host := must.Get(m.Host(operator(t.Context())))(t)
	places := map[string]string{
		"plan": fmt.Sprintf("%+v", plan), "show": fmt.Sprintf("%+v", shown), "log": log.String(),
		"doctor": fmt.Sprintf("%+v", host),
	}
	if !strings.Contains(places["plan"], "API_KEY") {
		t.Errorf("the plan has no variable: %s", places["plan"])
	}
	for _, pid := range pidsOf(a.UID) {
		for _, what := range []string{"environ", "cmdline"} {
			name := fmt.Sprintf("/proc/%d/%s", pid, what)
			b, err := os.ReadFile(name)
			if err == nil {
				places[name] = string(b)
			}
		}
	}
	root := filepath.Dir(opt.State)
	must.Do(t, filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && name != opt.Secrets["api"].File {
			b, rerr := os.ReadFile(name)
			if rerr == nil && len(b) < 64<<20 {
				places[name] = string(b)
			}
		}
		return nil
	}))
	for _, name := range []string{"chatd.db", "audit.jsonl"} {
		expect.True(t, places[filepath.Join(opt.State, name)] != "", "%s was not looked at", name)
	}
	// Homes hold the test's own binary, which has the values.
	for name, text := range places {
		if filepath.Base(name) == attackName {
			continue
		}
		for _, v := range []string{secretValue, secretNext} {
			expect.True(t, !strings.Contains(text, v), "%s has the value", name)
		}
	}
	begin := secretValue[:12]
	found := a.sh(t, `grep -rlsF --exclude=attack -e `+begin+` /etc /opt /run /tmp /var/tmp `+
		`/dev/shm "$HOME" | head; env | grep -F `+begin+`; true`)
	expect.Equal(t, found, "", "the chat finds")
	for _, pid := range egressesOf(opt) {
		out, err := exec.Command("cat", "/proc/"+pid+"/environ", "/proc/"+pid+"/cmdline").Output()
		if err == nil && bytes.Contains(out, []byte(begin)) {
			t.Error("chatd-egress shows it")
		}
	}
}

// TestSecretsDaemon: the program chatd takes secrets of its config, and another value at SIGHUP,
// for a chat that is awake. Neither its log nor that of chatd-egress has one.
func TestSecretsDaemon(t *testing.T) {
	api := newAPI(t, newInternet(t))
	opt, _ := withSecret(t)
	file := opt.Secrets["api"].File
	d := startDaemon(t, opt, "", fmt.Sprintf("log_level: debug\ndns_servers: [%s]\nsecrets:\n  api: {file: %s, "+
		"hosts: ['api.example.test:8443'], header: 'x-api-key: $', env: API_KEY}\nprofiles:\n"+
		"  named: {egress: ['api.example.test:8443'], secrets: [api], commands: ['*']}\n",
		outsideAddr, file))
	c := must.First(d.Create(t.Context(), chat.Spec{ExternalID: "daemon", Profile: "named"}))(t)
	program := filepath.Join(c.Home, attackName)
	must.Do(t, os.Link(attacker(t), program))
	get := func() string {
		r := must.Get(d.Run(t.Context(), c.ID, chat.RunSpec{Argv: []string{"sh", "-c",
			program + " get " + secretURL + "/v1 x-api-key $API_KEY"}}))(t)
		return r.Stdout + r.Stderr
	}
	if out := get(); !strings.HasPrefix(out, "ok ok /v1 ***") || api.last() != secretValue {
		t.Errorf("%q, the server got %q", out, api.last())
	}
	must.Do(t, os.WriteFile(file, []byte(secretNext+"\n"), 0o600))
	must.Do(t, d.cmd.Process.Signal(syscall.SIGHUP))
	until(t, "after SIGHUP the server gets the new value", func() bool {
		get()
		return api.last() == secretNext
	})
	for _, log := range []string{d.log, filepath.Join(opt.Run, "egress", "log")} {
		b, err := os.ReadFile(log)
		expect.True(t, err == nil && !bytes.Contains(b, []byte(secretValue[:12])),
			"%s has a value, or: %v", log, err)
	}
}
