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
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/internal/verbs"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
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
	Problem client.Problem
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
		must.Do(t, json.NewEncoder(&in).Encode(r))
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
	must.True(t, err == nil, "peer: %v: %s", err, out)
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
	must.True(t, len(answers) == len(requests), "%d answers to %d requests", len(answers), len(requests))
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

// startForPeers lets any uid connect, so that only the role refuses.
func startForPeers(t *testing.T) (socket string) {
	t.Helper()
	needRoot(t)
	socket, _ = start(t, peerServerOpt)
	must.Do(t, os.Chmod(socket, 0o666))
	return socket
}

// TestEachRouteForEachRole tries every row of the table with every role. The access column is
// written here a second time, on purpose.
func TestEachRouteForEachRole(t *testing.T) {
	socket := startForPeers(t)
	want := map[string]string{
		"create": "bridge operator both", "list": "bridge operator both", "show": "bridge operator both",
		"reap": "bridge operator both", "wake": "bridge operator both", "sleep": "bridge operator both",
		"freeze": "bridge operator both", "thaw": "bridge operator both",
		"patch": "bridge operator both", "run": "bridge operator both", "send": "bridge operator both", "screen": "bridge operator both", "log": "bridge operator both", "attach": "operator both",
		"plan": "operator both", "host": "operator both", "status": "operator both", "health": "stranger bridge operator both", "openapi": "bridge operator both",
		"read_file": "bridge operator both", "write_file": "bridge operator both", "edit_file": "bridge operator both",
		"append_file": "bridge operator both", "list_dir": "bridge operator both", "get_content": "bridge operator both",
		"put_content": "bridge operator both", "explain": "bridge operator both", "share": "bridge operator both", "mcp": "bridge operator both",
		"egress": "bridge operator both", "backup": "operator both",
		"archive": "bridge operator both", "list_archives": "bridge operator both",
		"verify_archive": "bridge operator both", "unarchive": "bridge operator both",
		"remove_archive": "bridge operator both",
		"processes":      "bridge operator both", "runs": "bridge operator both", "run_show": "bridge operator both", "run_end": "bridge operator both", "run_output": "bridge operator both",
		"run_stdin": "bridge operator both", "run_signal": "bridge operator both",
		"add_schedule": "bridge operator both", "list_schedules": "bridge operator both", "show_schedule": "bridge operator both", "remove_schedule": "bridge operator both",
	}
	bodies := map[string]string{"archive": `{}`,
		"patch": `{"labels":null}`, "create": `{"external_id":"a"}`, "run": `{"command":"echo"}`, "send": `{"text":"a"}`,
		"read_file": `{"path":"a"}`, "write_file": `{"path":"a","content":"b"}`, "append_file": `{"path":"a","content":"b"}`, "list_dir": `{}`,
		"edit_file": `{"path":"a","old_text":"b","new_text":"c"}`, "explain": `{"path":"a","op":"read"}`, "mcp": `{}`, "run_signal": `{"signal":"TERM"}`, "add_schedule": `{"cron":"@daily","command":"a"}`, "share": `{"path":"a","to":"` + someID + `"}`}
	var requests []string
	for _, r := range verbs.Table {
		path := strings.NewReplacer("{id}", someID, "{run}", "run-0", "{schedule}", "s1", "{name}",
			someID+"-20261125T160000Z").Replace(r.Path)
		text := r.Method + " " + path + " HTTP/1.1\r\nHost: x\r\n\r\n"
		if r.Body == verbs.JSON {
			text = post(path, bodies[r.Name])
		}
		requests = append(requests, text)
	}
	expect.True(t, len(verbs.Table) == len(want),
		"%d verbs.Table, and %d here", len(verbs.Table), len(want))
	for name := range written {
		expect.True(t, want[name] != "", "no row has the name %s of a handler", name)
	}
	for role, cred := range map[string]*syscall.Credential{"bridge": bridgeCred, "operator": operatorCred, "both": bothCred, "stranger": strangerCred} {
		for i, a := range as(t, socket, cred, requests...) {
			may := strings.Contains(" "+want[verbs.Table[i].Name]+" ", " "+role+" ")
			if denied := a.Status == 403 && a.Problem.Kind == "denied"; denied == may {
				t.Errorf("%s as %s: got %d %s", verbs.Table[i].Pattern(), role, a.Status, a.Body)
			}
		}
	}
}

func TestStrangersLearnNothing(t *testing.T) {
	socket := startForPeers(t)
	for i, a := range as(t, socket, strangerCred, get("/no/such"), "PUT /v1/chats HTTP/1.1\r\nHost: x\r\n\r\n", post("/v1/chats", "{"), get("/v1/chats/%00")) {
		expect.True(t, a.Status == 403 && a.Problem.Kind == "denied", "%d: got %d %s", i, a.Status, a.Body)
	}
}

func TestOwnersAreKeptApart(t *testing.T) {
	socket := startForPeers(t)
	create := post("/v1/chats", `{"external_id":"a"}`)
	id := func(a peerAnswer) chat.ID {
		var c chat.Chat
		err := json.Unmarshal([]byte(a.Body), &c)
		must.True(t, err == nil && c.ID != "", "%v: %s", err, a.Body)
		return c.ID
	}
	first := as(t, socket, bridgeCred, create, post("/v1/chats", `{"external_id":"a","owner":"user64002"}`), post("/v1/chats", `{"external_id":"a","owner":"user64001"}`))
	expect.True(t, first[0].Status == 201 && first[1].Status == 403 && first[2].Status == 200,
		"bridge: %+v", first)
	second := as(t, socket, bridge2Cred, create, get("/v1/chats/"+string(id(first[0]))), "DELETE /v1/chats/"+string(id(first[0]))+" HTTP/1.1\r\nHost: x\r\n\r\n")
	if second[0].Status != 201 || id(second[0]) == id(first[0]) || second[1].Status != 404 || second[2].Status != 404 {
		t.Errorf("other bridge: %+v", second)
	}
	op := as(t, socket, operatorCred, get("/v1/chats"), get("/v1/chats/"+string(id(first[0]))), post("/v1/chats", `{"external_id":"a","owner":"user64002"}`))
	if strings.Count(op[0].Body, `"id"`) != 2 || op[1].Status != 200 || op[2].Status != 200 || id(op[2]) != id(second[0]) {
		t.Errorf("operator: %+v", op)
	}
}

// TestFilesOfOthers: no route of the file tools reaches another bridge's chat, neither as source
// nor as target of a share.
func TestFilesOfOthers(t *testing.T) {
	socket := startForPeers(t)
	made := map[*syscall.Credential]string{}
	for _, cred := range []*syscall.Credential{bridgeCred, bridge2Cred} {
		a := as(t, socket, cred, post("/v1/chats", `{"external_id":"a"}`))[0]
		var c chat.Chat
		must.Do(t, json.Unmarshal([]byte(a.Body), &c))
		made[cred] = string(c.ID)
	}
	requests := func(id, to string) []string {
		at := "/v1/chats/" + id
		return []string{
			post(at+"/files/write_file", `{"path":"f","content":"x"}`), post(at+"/files/append_file", `{"path":"f","content":"x"}`),
			post(at+"/files/read_file", `{"path":"f"}`), post(at+"/files/edit_file", `{"path":"f","old_text":"xx","new_text":"y"}`),
			post(at+"/files/list_dir", `{}`), put(at+"/files/content?path=g", "x"), get(at + "/files/content?path=g"),
			post(at+"/explain", `{"path":"f","op":"read"}`), post(at+"/share", `{"path":"f","to":"`+to+`"}`),
		}
	}
	own, other := made[bridgeCred], made[bridge2Cred]
	for i, a := range as(t, socket, bridgeCred, requests(own, own)...) {
		expect.True(t, a.Status == 200 || a.Status == 201, "its own, %d: %d %s", i, a.Status, a.Body)
	}
	for i, a := range as(t, socket, bridgeCred, append(requests(other, own), requests(own, other)[8])...) {
		expect.True(t, a.Status == 404 && a.Problem.Kind == "not_found",
			"another's, %d: %d %s", i, a.Status, a.Body)
	}
	for i, a := range as(t, socket, operatorCred, append(requests(other, own)[:3], requests(other, own)[4:]...)...) {
		expect.True(t, a.Status == 200 || a.Status == 201, "operator, %d: %d %s", i, a.Status, a.Body)
	}
}

// TestArchivesOfOthers: no route reaches the archive of another bridge's chat, or says that it
// exists.
func TestArchivesOfOthers(t *testing.T) {
	socket := startForPeers(t)
	var names []string
	for _, cred := range []*syscall.Credential{bridgeCred, bridge2Cred} {
		var c chat.Chat
		made := as(t, socket, cred, post("/v1/chats", `{"external_id":"a"}`))[0]
		must.Do(t, json.Unmarshal([]byte(made.Body), &c))
		var a chat.Archive
		got := as(t, socket, cred, post("/v1/chats/"+string(c.ID)+"/archive", `{"keep":true}`))[0]
		err := json.Unmarshal([]byte(got.Body), &a)
		must.True(t, err == nil && a.Name != "", "%d %s %v", got.Status, got.Body, err)
		names = append(names, string(a.Name))
	}
	requests := func(name string) []string {
		at := "/v1/archives/" + name
		id, _, _ := strings.Cut(name, "-")
		return []string{
			bare("DELETE", "/v1/chats/"+id+"?archive=true"),
			post("/v1/chats/"+id+"/archive", `{}`), bare("POST", at+"/verify"),
			bare("POST", at+"/unarchive"), bare("DELETE", at),
		}
	}
	for i, a := range as(t, socket, bridgeCred, requests(names[1])...) {
		expect.True(t, a.Status == 404 && a.Problem.Kind == "not_found",
			"another's, %d: %d %s", i, a.Status, a.Body)
	}
	list := as(t, socket, bridgeCred, get("/v1/archives"), get("/v1/archives?owner=user64002"))
	if n := strings.Count(list[0].Body, `"name"`); n != 1 ||
		!strings.Contains(list[0].Body, names[0]) || strings.Contains(list[1].Body, "name") {
		t.Errorf("a bridge's list: %s %s", list[0].Body, list[1].Body)
	}
	all := as(t, socket, operatorCred, append(requests(names[1])[2:], get("/v1/archives"))...)
	if all[0].Status != 200 || all[1].Status != 409 || all[2].Status != 204 ||
		!strings.Contains(all[3].Body, names[0]) {
		t.Errorf("an operator: %+v", all)
	}
}

func TestInternalErrorsAreForOperators(t *testing.T) {
	needRoot(t)
	opt := peerServerOpt
	opt.NameOf = func(uid uint32) (string, error) { return "", fmt.Errorf("cannot open /secret") }
	socket, _ := start(t, opt)
	a := as(t, socket, bridgeCred, get("/v1/chats"))[0]
	expect.True(t, a.Status == 500 && !strings.Contains(a.Body, "secret") && a.Problem.Ref != "",
		"bridge: %d %s", a.Status, a.Body)
}
