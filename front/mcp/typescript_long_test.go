//go:build long

package mcp

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/api/apitest"
	"github.com/chatd/chatd/test/must"
	"github.com/chatd/chatd/test/npmtest"
)

// typescriptSDK is the client library of most agents.
const typescriptSDK = "@modelcontextprotocol/sdk@1.32.2"

// The TypeScript SDK's client uses every tool, over both transports: answers are checked against
// their schemas, progress keeps a long call from the client's timeout, and a cancelled call ends.
func TestLongTypeScript(t *testing.T) {
	dir := t.TempDir()
	npmtest.Install(t, dir, "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", typescriptSDK)
	script := must.Get(os.ReadFile("testdata/agent.mjs"))(t)
	must.Do(t, os.WriteFile(filepath.Join(dir, "agent.mjs"), script, 0o600))
	chatd := filepath.Join(dir, "chatd")
	if out, err := exec.Command("go", "build", "-o", chatd, "../../cmd/chatd").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	old := progressEvery
	t.Cleanup(func() { progressEvery = old })
	progressEvery = 200 * time.Millisecond // only for HTTP, served here
	for over, silent := range map[string]time.Duration{"http": 8 * time.Second, "stdio": 15 * time.Second} {
		t.Run(over, func(t *testing.T) {
			_, mem, id, socket := daemonOn(t)
			var ended atomic.Int32
			mem.OnRun = longRuns(silent+4*time.Second, &ended)
			where := []string{apitest.OverTCP(t, socket) + "/v1/chats/" + string(id) + "/mcp"}
			if over == "stdio" {
				where = []string{chatd, "--socket", socket, "mcp", string(id)}
			}
			cmd := exec.Command("node", append([]string{filepath.Join(dir, "agent.mjs"), over, fmt.Sprint(silent.Milliseconds())}, where...)...)
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			must.True(t, err == nil && strings.Contains(string(out), "used every tool"), "%v: %s", err, out)
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
