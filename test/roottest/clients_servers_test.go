package roottest

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/test/must"
)

// servers are those that real clients ask: each by a name of its own, all at one address.
type servers struct {
	*internet
	dir string // repositories, the server's keys
}

// serverID is the uid that servers of the outside run as, on this host.
const serverID = 60998

// gitToken is the secret for repositories over HTTPS.
const gitToken = "git-roottest-0123456789abcdefghij"

// newServers starts them: SSH with git on 22, HTTP on 8081, HTTPS on 8443, a CONNECT proxy on 3128,
// Redis on 6379.
func newServers(t *testing.T) *servers {
	t.Helper()
	s := &servers{newInternet(t), filepath.Join("/srv", "servers")}
	must.Do(t, os.Mkdir(s.dir, 0o755))
	t.Cleanup(func() { must.Do(t, os.RemoveAll(s.dir)) })
	if _, err := os.Stat("/usr/bin/git"); err == nil {
		s.makeRepositories(t)
	}
	if _, err := os.Stat("/usr/sbin/sshd"); err == nil {
		s.serveSSH(t)
	}
	h := s.handler(t)
	for _, l := range s.listen(t, "8081") {
		go func() { _ = http.Serve(l, h) }()
	}
	serveSecure(t, s.internet, "8443", h, "git.example.test", "npm.example.test",
		"pypi.example.test", "web.example.test", "hidden.example.test")
	for _, l := range s.listen(t, "3128") {
		go func() { _ = http.Serve(l, http.HandlerFunc(s.proxy)) }()
	}
	if _, err := os.Stat("/usr/bin/redis-check-rdb"); err == nil {
		s.serveRedis(t)
	}
	return s
}

// asServer has a program of the outside run without privileges.
func asServer(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: serverID, Gid: serverID}}
	return cmd
}

// makeRepositories makes one for SSH, and one for HTTPS.
func (s *servers) makeRepositories(t *testing.T) {
	t.Helper()
	home := filepath.Join(s.dir, "home")
	must.Do(t, os.Mkdir(home, 0o755))
	must.Do(t, os.Chown(home, serverID, serverID))
	for name, cmd := range map[string]*exec.Cmd{
		filepath.Join(home, "repo.git"):  asServer(exec.Command("git", "init", "--bare", "-q")),
		filepath.Join(s.dir, "repo.git"): exec.Command("git", "init", "--bare", "-q"),
	} {
		cmd.Args = append(cmd.Args, name)
		cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/bin:/bin", "HOME=" + home}
		must.Run(t, cmd)
	}
}

// head is what a repository has as its branch work.
func (s *servers) head(t *testing.T, repo string) string {
	t.Helper()
	b := must.Get(os.ReadFile(filepath.Join(s.dir, repo, "refs", "heads", "work")))(t)
	return strings.TrimSpace(string(b))
}

// serveSSH has OpenSSH's sshd answer each connection to port 22, as the user git, without
// privileges: it lets that user in alone, and sees a /etc/passwd that has it.
func (s *servers) serveSSH(t *testing.T) {
	t.Helper()
	passwd, config := filepath.Join(s.dir, "passwd"), filepath.Join(s.dir, "sshd_config")
	home := filepath.Join(s.dir, "home")
	key := filepath.Join(s.dir, "host_key")
	must.Do(t, os.WriteFile(passwd, fmt.Appendf(nil, "root:x:0:0::/root:/bin/sh\n"+
		"git:x:%d:%d::%s:/bin/sh\n", serverID, serverID, home), 0o644))
	must.Do(t, os.WriteFile(config, []byte("HostKey "+key+"\nAuthorizedKeysFile "+s.dir+"/known\n"+
		"StrictModes no\nUsePAM no\nPasswordAuthentication no\nUseDNS no\nPidFile none\n"+
		"Subsystem sftp internal-sftp\n"), 0o644))
	makeKey(t, key, serverID)
	s.silence("22")
	for _, l := range s.listen(t, "22") {
		go each(l, func(c net.Conn) {
			f, err := c.(*net.TCPConn).File()
			if err != nil {
				return
			}
			defer f.Close()
			// In a pid namespace, so that no process of it is left.
			cmd := exec.Command("unshare", "--mount", "--pid", "--fork", "sh", "-c", `mount --bind "$1" /etc/passwd &&
exec setpriv --reuid="$0" --regid="$0" --clear-groups /usr/sbin/sshd -i -e -f "$2"`,
				fmt.Sprint(serverID), passwd, config)
			cmd.Stdin, cmd.Stdout = f, f
			cmd.Env = []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin"}
			_ = cmd.Run()
		})
	}
}

// makeKey makes a key pair without a passphrase.
func makeKey(t *testing.T, name string, uid int) {
	t.Helper()
	out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f",
		name).CombinedOutput()
	must.True(t, err == nil, "ssh-keygen: %v: %s", err, out)
	must.Do(t, os.Chown(name, uid, uid))
}

// welcome gives a chat a key in ~/.ssh that the server knows, and the server's.
func (s *servers) welcome(t *testing.T, a inmate) {
	t.Helper()
	a.sh(t, "mkdir -m 0700 ~/.ssh")
	key := a.in(".ssh/id_ed25519")
	makeKey(t, key, int(a.UID))
	mine := must.Get(os.ReadFile(key + ".pub"))(t)
	must.Do(t, os.WriteFile(filepath.Join(s.dir, "known"), mine, 0o644))
	theirs := must.Get(os.ReadFile(filepath.Join(s.dir, "host_key.pub")))(t)
	must.Do(t, os.WriteFile(a.in(".ssh/known_hosts"), append([]byte("git.example.test "),
		theirs...), 0o644))
}

// dial connects to a server of the outside, from there.
func (s *servers) dial(port string) (c net.Conn, err error) {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", s.cmd.Process.Pid))
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	err = sys.OnThread(func() (err error) {
		if err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err == nil {
			c, err = net.Dial("tcp4", outsideAddr+":"+port)
		}
		return err
	})
	return c, err
}

// serveRedis starts Redis: Debian's redis-tools has the server under the name of another program.
func (s *servers) serveRedis(t *testing.T) {
	t.Helper()
	// It ends with its shell's stdin, also if the test is killed.
	cmd := asServer(exec.Command("bash", "-c", `(exec -a redis-server /usr/bin/redis-check-rdb \
--port 6379 --bind 0.0.0.0 --protected-mode no --save "" --dir /) & cat; kill $!; wait`))
	in := must.Get(cmd.StdinPipe())(t)
	s.in(t, cmd.Start)
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	until(t, "Redis listens", func() bool {
		c, err := s.dial("6379")
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
}

// handler has the registries of npm and pip, a mirror of Debian packages, git, an echo over
// WebSocket, and for other paths what the request was.
func (s *servers) handler(t *testing.T) http.Handler {
	h := http.NewServeMux()
	files := map[string][]byte{}
	npmPackage(t, files)
	pipPackage(t, files)
	if _, err := exec.LookPath("dpkg-deb"); err == nil {
		debianPackage(t, files)
	}
	for path, b := range files {
		h.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(path, "/") {
				w.Header().Set("Content-Type", "text/html")
			}
			_, _ = w.Write(b)
		})
	}
	h.HandleFunc("web.example.test/ws", echoWebSocket)
	h.Handle("git.example.test/", s.gitHandler())
	echo := func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "outside heard %s %s %s\n", r.Method, r.URL.Path, r.Proto)
	}
	h.HandleFunc("web.example.test/", echo)
	h.HandleFunc("hidden.example.test/", echo)
	return h
}

// gitHandler is git's own server of HTTP, for those with the token.
func (s *servers) gitHandler() http.Handler {
	backend := &cgi.Handler{Path: "/usr/lib/git-core/git-http-backend", Stderr: io.Discard,
		Env: []string{"GIT_PROJECT_ROOT=" + s.dir, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=git"}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, token, ok := r.BasicAuth(); !ok || user != "git" || token != gitToken {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "no token "+token, http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	})
}

// npmPackage adds a registry of one package, the document and the archive.
func npmPackage(t *testing.T, files map[string][]byte) {
	t.Helper()
	b := archive(t, map[string]string{
		"package/package.json": `{"name": "left-test", "version": "1.0.0", "main": "x.js"}`,
		"package/x.js":         `module.exports = "npm installed it"`,
	})
	sum, old := sha512.Sum512(b), sha1.Sum(b)
	doc := must.Get(json.Marshal(map[string]any{
		"name": "left-test", "dist-tags": map[string]string{"latest": "1.0.0"},
		"versions": map[string]any{"1.0.0": map[string]any{
			"name": "left-test", "version": "1.0.0", "dist": map[string]string{
				"tarball":   "https://npm.example.test:8443/left-test/-/left-test-1.0.0.tgz",
				"shasum":    fmt.Sprintf("%x", old),
				"integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])},
		}},
	}))(t)
	files["npm.example.test/left-test"] = doc
	files["npm.example.test/left-test/-/left-test-1.0.0.tgz"] = b
}

// archive is a tar.gz.
func archive(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, text := range files {
		must.Do(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}))
		must.Get(io.WriteString(w, text))(t)
	}
	must.Do(t, w.Close())
	must.Do(t, z.Close())
	return b.Bytes()
}

// pipPackage adds an index (PEP 503) with a wheel.
func pipPackage(t *testing.T, files map[string][]byte) {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	const info, wheel = "left_test-1.0.dist-info/", "left_test-1.0-py3-none-any.whl"
	for name, text := range map[string]string{
		"left_test.py":    `said = "pip installed it"`,
		info + "METADATA": "Metadata-Version: 2.1\nName: left-test\nVersion: 1.0\n",
		info + "WHEEL":    "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		info + "RECORD": "left_test.py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" +
			info + "RECORD,,\n",
	} {
		f := must.Get(w.Create(name))(t)
		must.Get(io.WriteString(f, text))(t)
	}
	must.Do(t, w.Close())
	files["pypi.example.test/simple/left-test/"] = fmt.Appendf(nil,
		`<!DOCTYPE html><a href="/files/%s#sha256=%x">%[1]s</a>`, wheel, sha256.Sum256(b.Bytes()))
	files["pypi.example.test/files/"+wheel] = b.Bytes()
}

// debianPackage adds a flat repository with one package.
func debianPackage(t *testing.T, files map[string][]byte) {
	t.Helper()
	const control = "Package: left-test\nVersion: 1.0\nArchitecture: all\n" +
		"Maintainer: Nobody <nobody@example.test>\nDescription: is for a test\n"
	dir := t.TempDir()
	tree, deb := filepath.Join(dir, "tree"), filepath.Join(dir, "left.deb")
	must.Do(t, os.MkdirAll(filepath.Join(tree, "DEBIAN"), 0o755))
	must.Do(t, os.WriteFile(filepath.Join(tree, "DEBIAN", "control"), []byte(control), 0o644))
	must.Do(t, os.WriteFile(filepath.Join(tree, "left-test"), []byte("apt fetched it\n"), 0o644))
	out, err := exec.Command("dpkg-deb", "--root-owner-group", "-b", tree, deb).CombinedOutput()
	must.True(t, err == nil, "dpkg-deb: %v: %s", err, out)
	b := must.Get(os.ReadFile(deb))(t)
	files["mirror.example.test/left-test_1.0_all.deb"] = b
	files["mirror.example.test/Packages"] = fmt.Appendf(nil,
		"%sFilename: ./left-test_1.0_all.deb\nSize: %d\nSHA256: %x\n\n", control, len(b),
		sha256.Sum256(b))
}

// proxy is a CONNECT proxy to the outside's own address, whatever it is asked for.
func (s *servers) proxy(w http.ResponseWriter, r *http.Request) {
	_, port, err := net.SplitHostPort(r.Host)
	if err != nil || r.Method != http.MethodConnect {
		http.Error(w, "want CONNECT", http.StatusMethodNotAllowed)
		return
	}
	near, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer near.Close()
	far, err := s.dial(port)
	if err != nil {
		return
	}
	defer far.Close()
	fmt.Fprint(near, "HTTP/1.1 200 OK\r\n\r\n")
	go func() { _, _ = io.Copy(far, near); _ = far.Close() }()
	_, _ = io.Copy(near, far)
}

// echoWebSocket answers the first message of a client, of less than 126 bytes (RFC 6455).
func echoWebSocket(w http.ResponseWriter, r *http.Request) {
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") +
		"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	accept := base64.StdEncoding.EncodeToString(sum[:])
	c, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"+
		"Connection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n", accept)
	_ = rw.Flush()
	message, err := readFrame(rw.Reader)
	if err != nil {
		return
	}
	message = append([]byte("outside heard "), message...)
	_, _ = rw.Write(append([]byte{0x81, byte(len(message))}, message...))
	_ = rw.Flush()
	_, _ = readFrame(rw.Reader) // the client's close
	_, _ = rw.Write([]byte{0x88, 0})
	_ = rw.Flush()
}

// readFrame reads a short masked one.
func readFrame(r *bufio.Reader) ([]byte, error) {
	head := make([]byte, 6)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	b := make([]byte, head[1]&0x7f)
	_, err := io.ReadFull(r, b)
	for i := range b {
		b[i] ^= head[2+i%4]
	}
	return b, err
}
