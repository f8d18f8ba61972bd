package roottest

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
)

// socketPrograms are what programs of agents do with sockets: look names up, serve, ask,
// set the sizes of buffers and what is told of errors. Each prints ok.
var socketPrograms = map[string]string{
	"getent": "getent hosts localhost && echo ok",
	"git":    "git init -q r && git -C r status -s && echo ok",
	"python3": `python3 -c '
import socket, threading
socket.getaddrinfo("localhost", 80, 0, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG)
l = socket.create_server(("127.0.0.1", 0), reuse_port=True)
threading.Thread(target=lambda: l.accept()[0].sendall(b"ok"), daemon=True).start()
c = socket.create_connection(l.getsockname())
for level, option in (socket.SOL_SOCKET, socket.SO_SNDBUF), (socket.SOL_SOCKET, socket.SO_RCVBUF), (socket.SOL_SOCKET, socket.SO_KEEPALIVE), (socket.IPPROTO_TCP, socket.TCP_NODELAY), (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE):
    c.setsockopt(level, option, 65536 if option in (socket.SO_SNDBUF, socket.SO_RCVBUF) else 1)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.setsockopt(socket.IPPROTO_IP, 11, 1) # IP_RECVERR, as the resolver of glibc sets
socket.socketpair()
print(c.recv(2).decode())'`,
	"node": `node -e '
if (require("os").networkInterfaces().lo.length !== 2) throw "no lo"
const s = require("http").createServer((q, a) => a.end("ok")).listen(0, "127.0.0.1", () =>
  require("dns").lookup("localhost", () =>
    require("http").get({port: s.address().port, host: "127.0.0.1"}, a => a.on("data", d => {
      const u = require("dgram").createSocket("udp4").bind(0, () => { u.setRecvBufferSize(65536); u.close(); console.log(String(d)); s.close() }) }))))'`,
}

// TestUnconnectedSockets: a program that opens many sockets before it connects any lives on.
func TestUnconnectedSockets(t *testing.T) {
	m := open(t, options(t))
	c := create(t, m, "unconnected", "default")
	const script = `python3 -c '
import socket, time
all = [socket.socket() for _ in range(900)]
time.sleep(3)
print(len(all))'`
	r := run(t, m, c.ID, script)
	expect.True(t, strings.TrimSpace(r.Stdout) == "900", "%+v", r)
	got, err := m.Get(operator(t.Context()), c.ID)
	expect.True(t, err == nil && got.Awake, "its session has ended: %v", err)
}

// TestProgramsWithoutNetlink: what agents are made of works without netlink and with the
// socket options that are left; allow_netlink lists interfaces.
func TestProgramsWithoutNetlink(t *testing.T) {
	opt := options(t)
	edit(opt, "netlink", func(p *chat.Profile) { p.AllowNetlink = true })
	m := open(t, opt)
	for _, profile := range []string{"default", "web"} {
		c := create(t, m, "programs "+profile, profile)
		for program, script := range socketPrograms {
			if _, err := exec.LookPath(program); err != nil {
				t.Logf("no %s here", program)
				continue
			}
			if r := run(t, m, c.ID, script); r.Exit != 0 || strings.TrimSpace(lastLine(r.Stdout, r.Stderr)) != "ok" {
				t.Errorf("%s in %s: exit %d: %s %s", program, profile, r.Exit, r.Stdout, r.Stderr)
			}
		}
	}
	const list = `python3 -c 'import socket; print(socket.if_nameindex()[0][1])'`
	r := run(t, m, create(t, m, "lists", "netlink").ID, list)
	expect.True(t, strings.TrimSpace(r.Stdout) == "lo", "with allow_netlink: %+v", r)
	r = run(t, m, create(t, m, "does not list", "default").ID, list)
	expect.True(t, r.Exit != 0, "without allow_netlink: %+v", r)
}
