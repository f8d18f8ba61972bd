//go:build linux

package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/chatd/chatd/chat"
)

// peerEnv makes the test binary a peer: it sends what it reads, one request in
// JSON text a line, to the socket that the variable names, and writes one answer
// a line.
const peerEnv = "CHATD_TEST_PEER"

func TestMain(m *testing.M) {
	if socket := os.Getenv(peerEnv); socket != "" {
		os.Exit(beAPeer(socket))
	}
	os.Exit(m.Run())
}

type peerAnswer struct {
	Status  int
	Problem Problem
	Body    string
}

func beAPeer(socket string) int {
	dec, enc := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var request string
		if err := dec.Decode(&request); err == io.EOF {
			return 0
		} else if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		c, err := net.Dial("unix", socket)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return connectExit
		}
		_ = c.Close()
		g := raw(&testing.T{}, socket, request)
		if err := enc.Encode(peerAnswer{g.status, g.problem, g.body}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
}

const (
	bridgeGID   = 64111
	operatorGID = 64112
)

// connectExit is how a peer says that it could not connect.
const connectExit = 7

var errConnect = errors.New("cannot connect")

// tryConnect is errConnect if the user may not connect, nil if it may.
func tryConnect(t *testing.T, socket string, cred *syscall.Credential) error {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Dir, cmd.Env, cmd.Stdin = "/", []string{peerEnv + "=" + socket}, strings.NewReader(`"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"`)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == connectExit {
		return fmt.Errorf("%w: %s", errConnect, out)
	}
	return err
}

// as sends requests as another user.
func as(t *testing.T, socket string, cred *syscall.Credential, requests ...string) []peerAnswer {
	t.Helper()
	var in strings.Builder
	for _, r := range requests {
		if err := json.NewEncoder(&in).Encode(r); err != nil {
			t.Fatal(err)
		}
	}
	// The test binary lies in a directory that other users cannot enter; its own
	// link in /proc leads past that.
	cmd := exec.Command("/proc/self/exe")
	cmd.Dir = "/"
	cmd.Env = []string{peerEnv + "=" + socket}
	cmd.Stdin = strings.NewReader(in.String())
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("peer: %v: %s", err, out)
	}
	var answers []peerAnswer
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var a peerAnswer
		if err := dec.Decode(&a); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, a)
	}
	if len(answers) != len(requests) {
		t.Fatalf("%d answers to %d requests", len(answers), len(requests))
	}
	return answers
}

var (
	bridgeCred    = &syscall.Credential{Uid: 64001, Gid: 64001, Groups: []uint32{5, bridgeGID}}
	bridge2Cred   = &syscall.Credential{Uid: 64002, Gid: bridgeGID}
	operatorCred  = &syscall.Credential{Uid: 64003, Gid: 64003, Groups: []uint32{operatorGID}}
	bothCred      = &syscall.Credential{Uid: 64004, Gid: bridgeGID, Groups: []uint32{operatorGID}}
	strangerCred  = &syscall.Credential{Uid: 64005, Gid: 64005}
	peerServerOpt = ServerOptions{Operators: []uint32{operatorGID}, Bridges: []uint32{bridgeGID},
		NameOf: func(uid uint32) (string, error) { return fmt.Sprintf("user%d", uid), nil }}
)

// startForPeers also lets strangers connect, so that it is the role that refuses.
func startForPeers(t *testing.T) (socket string) {
	t.Helper()
	needRoot(t)
	socket, _ = start(t, peerServerOpt)
	if err := os.Chmod(socket, 0o666); err != nil {
		t.Fatal(err)
	}
	return socket
}

// Every row of the table is tried with every role. The access column is written
// here a second time, on purpose.
func TestEachRouteForEachRole(t *testing.T) {
	socket := startForPeers(t)
	want := map[string]string{
		"create": "bridge operator both", "list": "bridge operator both", "show": "bridge operator both",
		"reap": "bridge operator both", "wake": "bridge operator both", "sleep": "bridge operator both",
		"run": "bridge operator both", "send": "bridge operator both", "screen": "bridge operator both",
		"host": "operator both", "health": "stranger bridge operator both", "openapi": "bridge operator both",
	}
	bodies := map[string]string{"create": `{"external_id":"a"}`, "run": `{"command":"echo"}`, "send": `{"text":"a"}`}
	var requests []string
	for _, r := range routes {
		path := strings.ReplaceAll(r.path, "{id}", someID)
		text := r.method + " " + path + " HTTP/1.1\r\nHost: x\r\n\r\n"
		if r.body {
			text = post(path, bodies[r.name])
		}
		requests = append(requests, text)
	}
	if len(routes) != len(want) {
		t.Errorf("%d routes, and %d here", len(routes), len(want))
	}
	for role, cred := range map[string]*syscall.Credential{"bridge": bridgeCred, "operator": operatorCred, "both": bothCred, "stranger": strangerCred} {
		for i, a := range as(t, socket, cred, requests...) {
			may := strings.Contains(" "+want[routes[i].name]+" ", " "+role+" ")
			if denied := a.Status == 403 && a.Problem.Kind == "denied"; denied == may {
				t.Errorf("%s as %s: got %d %s", routes[i].pattern(), role, a.Status, a.Body)
			}
		}
	}
}

func TestStrangersLearnNothing(t *testing.T) {
	socket := startForPeers(t)
	for i, a := range as(t, socket, strangerCred, get("/no/such"), "PUT /v1/chats HTTP/1.1\r\nHost: x\r\n\r\n", post("/v1/chats", "{"), get("/v1/chats/%00")) {
		if a.Status != 403 || a.Problem.Kind != "denied" {
			t.Errorf("%d: got %d %s", i, a.Status, a.Body)
		}
	}
}

func TestOwnersAreKeptApart(t *testing.T) {
	socket := startForPeers(t)
	create := post("/v1/chats", `{"external_id":"a"}`)
	id := func(a peerAnswer) chat.ID {
		var c chat.Chat
		if err := json.Unmarshal([]byte(a.Body), &c); err != nil || c.ID == "" {
			t.Fatalf("%v: %s", err, a.Body)
		}
		return c.ID
	}
	first := as(t, socket, bridgeCred, create, post("/v1/chats", `{"external_id":"a","owner":"user64002"}`), post("/v1/chats", `{"external_id":"a","owner":"user64001"}`))
	if first[0].Status != 201 || first[1].Status != 403 || first[2].Status != 200 {
		t.Errorf("bridge: %+v", first)
	}
	second := as(t, socket, bridge2Cred, create, get("/v1/chats/"+string(id(first[0]))), "DELETE /v1/chats/"+string(id(first[0]))+" HTTP/1.1\r\nHost: x\r\n\r\n")
	if second[0].Status != 201 || id(second[0]) == id(first[0]) || second[1].Status != 404 || second[2].Status != 404 {
		t.Errorf("other bridge: %+v", second)
	}
	op := as(t, socket, operatorCred, get("/v1/chats"), get("/v1/chats/"+string(id(first[0]))), post("/v1/chats", `{"external_id":"a","owner":"user64002"}`))
	if strings.Count(op[0].Body, `"id"`) != 2 || op[1].Status != 200 || op[2].Status != 200 || id(op[2]) != id(second[0]) {
		t.Errorf("operator: %+v", op)
	}
}

func TestInternalErrorsAreForOperators(t *testing.T) {
	needRoot(t)
	opt := peerServerOpt
	opt.NameOf = func(uid uint32) (string, error) { return "", fmt.Errorf("cannot open /secret") }
	socket, _ := start(t, opt)
	a := as(t, socket, bridgeCred, get("/v1/chats"))[0]
	if a.Status != 500 || strings.Contains(a.Body, "secret") || a.Problem.Ref == "" {
		t.Errorf("bridge: %d %s", a.Status, a.Body)
	}
}
