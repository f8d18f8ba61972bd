//go:build long

package roottest

import (
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// devServers start servers that print their addresses, and runners of tests that size themselves by
// CPUs, as people call them.
var devServers = map[string]string{
	"http-server": "/usr/local/bin/http-server . -p 8080",
	"serve":       "/usr/local/bin/serve -l 8080",
	"vite":        "/usr/local/bin/vite --host --port 8080",
}

// TestLongDevServers: the servers of npm's registry that list the host's interfaces start and answer
// in the profile `agent` as it is shipped, without netlink, and vitest ends well in one CPU and 1 GiB.
func TestLongDevServers(t *testing.T) {
	installAgents(t, "http-server@14", "serve@14", "vite@5", "vitest@2")
	d := shippedDaemon(t, options(t), t.TempDir())
	c := must.First(d.Create(t.Context(), chat.Spec{ExternalID: "dev", Profile: "agent"}))(t)
	for name, start := range devServers {
		script := "mkdir " + name + " && cd " + name + " && echo it answers >index.html && { " + start + ` >out 2>&1 & }
for i in $(seq 100); do curl -sf http://127.0.0.1:8080/ && break; sleep 0.1; done; cat out; kill %1; wait`
		r, err := d.Run(t.Context(), c.ID, chat.RunSpec{Argv: []string{"bash", "-mc", script}})
		expect.True(t, err == nil && strings.Contains(r.Stdout, "it answers"),
			"%s: %v, %+v", name, err, r)
	}
	const tests = `mkdir v && cd v && mkdir node_modules && ln -s /usr/local/lib/node_modules/* node_modules/ && echo '{"type":"module"}' >package.json
for i in $(seq 20); do echo 'import {test} from "vitest"; test("x", () => { new Array(1e6).fill(1) })' >x$i.test.js; done
/usr/local/bin/vitest run 2>&1 | tail -8`
	r, err := d.Run(t.Context(), c.ID, chat.RunSpec{Argv: []string{"bash", "-c", tests}})
	expect.True(t, err == nil && strings.Contains(r.Stdout, "20 passed"), "vitest: %v, %+v", err, r)
}
