//go:build long

package api

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestLongGeneratedClient: a stock linter has no error in openapi.json, and the client of a stock
// generator, compiled by strict tsc, lives the life of a chat.
func TestLongGeneratedClient(t *testing.T) {
	dir := t.TempDir()
	inNode(t, dir, true, "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "@redocly/cli@2.77.0",
		"openapi-typescript@7.13.0", "openapi-fetch@0.17.0", "typescript@5.9.3", "@types/node@20.19.43")
	socket, _ := start(t, ServerOptions{})
	for name, text := range map[string]string{"openapi.json": raw(t, socket, get("/openapi.json")).body, "package.json": `{"type": "module"}`,
		"client.ts": fromTestdata(t, "client.ts"), "tsconfig.json": fromTestdata(t, "tsconfig.json")} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	inNode(t, dir, false, "node_modules/.bin/redocly", "lint", "openapi.json")
	inNode(t, dir, false, "node_modules/.bin/openapi-typescript", "openapi.json", "-o", "schema.d.ts")
	inNode(t, dir, false, "node_modules/.bin/tsc", "-p", ".")
	out := inNode(t, dir, false, "node", "out/client.js", overTCP(t, socket))
	if !strings.Contains(out, "create, run, files, reap") {
		t.Errorf("the client says %s", out)
	}
}

func fromTestdata(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "generated", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// inNode runs a program in dir. Where npm, or its registry, is not there the test skips, and says
// so; as root, where nothing may be missing, it fails.
func inNode(t *testing.T, dir string, needed bool, argv ...string) string {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "REDOCLY_TELEMETRY=off")
	out, err := cmd.CombinedOutput()
	why := fmt.Sprintf("%v: %v: %s", argv, err, out)
	switch {
	case err == nil:
	case needed && os.Getenv("CHATD_TEST_REQUIRE") != "all":
		t.Skip("NOT TRIED, no client from npm: " + why)
	default:
		t.Fatal(why)
	}
	return string(out)
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
