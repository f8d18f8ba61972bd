//go:build long

package api

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/front/api/apitest"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
	"github.com/chatd/chatd/test/npmtest"
)

// TestLongGeneratedClient: a stock linter finds no error in openapi.json, and a client from a stock
// generator, compiled by strict tsc, takes a chat from create to reap.
func TestLongGeneratedClient(t *testing.T) {
	dir := t.TempDir()
	npmtest.Install(t, dir, "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "@redocly/cli@2.77.0",
		"openapi-typescript@7.13.0", "openapi-fetch@0.17.0", "typescript@5.9.3", "@types/node@20.19.43")
	socket, _ := start(t, ServerOptions{})
	for name, text := range map[string]string{"openapi.json": raw(t, socket, get("/openapi.json")).body, "package.json": `{"type": "module"}`,
		"client.ts": fromTestdata(t, "client.ts"), "tsconfig.json": fromTestdata(t, "tsconfig.json")} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	inNode(t, dir, "node_modules/.bin/redocly", "lint", "openapi.json")
	inNode(t, dir, "node_modules/.bin/openapi-typescript", "openapi.json", "-o", "schema.d.ts")
	inNode(t, dir, "node_modules/.bin/tsc", "-p", ".")
	out := inNode(t, dir, "node", "out/client.js", apitest.OverTCP(t, socket))
	expect.True(t, strings.Contains(out, "create, run, files, reap"), "the client says %s", out)
}

func fromTestdata(t *testing.T, name string) string {
	t.Helper()
	b := must.Get(os.ReadFile(filepath.Join("testdata", "generated", name)))(t)
	return string(b)
}

// inNode runs a program in dir.
func inNode(t *testing.T, dir string, argv ...string) string {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "REDOCLY_TELEMETRY=off")
	out, err := cmd.CombinedOutput()
	must.True(t, err == nil, "%v: %v: %s", argv, err, out)
	return string(out)
}
