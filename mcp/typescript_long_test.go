//go:build long

package mcp

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chatd/chatd/api/apitest"
	"github.com/chatd/chatd/chat"
)

// typescriptSDK is the client that most agents are made with.
const typescriptSDK = "@modelcontextprotocol/sdk@1.32.2"

// fromNPM is a directory with packages of npm's registry. Where there is no npm, or no registry,
// the test skips, and says so; as root, where nothing may be missing, it fails.
func fromNPM(t *testing.T, packages ...string) string {
	t.Helper()
	dir := t.TempDir()
	why := ""
	for _, name := range []string{"node", "npm"} {
		if _, err := exec.LookPath(name); err != nil {
			why = err.Error()
		}
	}
	if why == "" {
		cmd := exec.Command("npm", append([]string{"install", "--no-audit", "--no-fund", "--ignore-scripts"}, packages...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			why = fmt.Sprintf("npm install %v: %v: %s", packages, err, out)
		}
	}
	switch {
	case why == "":
	case os.Getenv("CHATD_TEST_REQUIRE") == "all":
		t.Fatalf("cannot try a client from npm, and CHATD_TEST_REQUIRE=all: %s", why)
	default:
		t.Skipf("NOT TRIED, no client from npm: %s", why)
	}
	return dir
}

// overTCP serves the socket on a port of loopback, for clients that know no unix sockets.
func overTCP(t *testing.T, socket string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("unix", socket)
			if err != nil {
				_ = in.Close()
				continue
			}
			go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
			go func() { _, _ = io.Copy(in, out); _ = in.Close() }()
		}
	}()
	return "http://" + l.Addr().String()
}

// The TypeScript SDK's client uses every tool, over both transports: answers are held against
// their schemas, a long call outlives the client's patience by progress, and one that it cancels ends.
func TestLongTypeScript(t *testing.T) {
	dir := fromNPM(t, typescriptSDK)
	script, err := os.ReadFile("testdata/agent.mjs")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "agent.mjs"), script, 0o600); err != nil {
		t.Fatal(err)
	}
	chatd := filepath.Join(dir, "chatd")
	if out, err := exec.Command("go", "build", "-o", chatd, "../cmd/chatd").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	old := progressEvery
	t.Cleanup(func() { progressEvery = old })
	progressEvery = 200 * time.Millisecond // of HTTP, which is served here; stdio is a program of its own
	for over, silent := range map[string]time.Duration{"http": 8 * time.Second, "stdio": 15 * time.Second} {
		t.Run(over, func(t *testing.T) {
			_, mem, id, socket := daemonOn(t)
			var ended atomic.Int32
			mem.OnRun = longRuns(silent+4*time.Second, &ended)
			where := []string{overTCP(t, socket) + "/v1/chats/" + string(id) + "/mcp"}
			if over == "stdio" {
				where = []string{chatd, "--socket", socket, "mcp", string(id)}
			}
			cmd := exec.Command("node", append([]string{filepath.Join(dir, "agent.mjs"), over, fmt.Sprint(silent.Milliseconds())}, where...)...)
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "used every tool") {
				t.Fatalf("%v: %s", err, out)
			}
			for end := time.Now().Add(generous); ended.Load() < 2; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%d of 2 calls that were cancelled have ended", ended.Load())
				}
			}
		})
	}
}

// longRuns knows "long" and "hang" beside what a Memory does by itself.
func longRuns(long time.Duration, ended *atomic.Int32) func(context.Context, chat.RunSpec) (chat.RunResult, error) {
	return func(ctx context.Context, spec chat.RunSpec) (chat.RunResult, error) {
		switch spec.Command {
		case "long":
			select {
			case <-ctx.Done():
				return chat.RunResult{}, ctx.Err()
			case <-time.After(long):
				return chat.RunResult{Stdout: "at last"}, nil
			}
		case "hang":
			<-ctx.Done()
			ended.Add(1)
			return chat.RunResult{}, ctx.Err()
		}
		return apitest.Command(spec, ""), nil
	}
}
