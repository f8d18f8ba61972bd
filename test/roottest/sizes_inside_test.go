package roottest

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestSanitizersAndAgent: a program of AddressSanitizer ends well, and ssh-agent, which is
// set-group-id on Debian, starts by its name and holds a key.
func TestSanitizersAndAgent(t *testing.T) {
	m := open(t, options(t))
	c := create(t, m, "sanitizers", "default")
	for program, script := range map[string]string{
		"gcc":       `echo 'int main(){return 0;}' >m.c && gcc -fsanitize=address m.c -o m && ./m && gcc -fsanitize=leak m.c -o m && ./m`,
		"ssh-agent": `eval $(ssh-agent) && ssh-keygen -qt ed25519 -N "" -f k && ssh-add -q k && ssh-add -l | grep -c ED25519 && ssh-agent -k`,
	} {
		if _, err := exec.LookPath(program); err != nil {
			t.Logf("the host has no %s", program)
			continue
		}
		if r := run(t, m, c.ID, script); r.Exit != 0 {
			t.Errorf("%s: exit %d: %s %s", program, r.Exit, r.Stdout, r.Stderr)
		}
	}
}

// TestRuntimesFitTheChat: the heaps of runtimes stay below the chat's memory_max, and their workers
// below its CPU quota, in a run and in the terminal. A program that makes garbage ends by itself.
func TestRuntimesFitTheChat(t *testing.T) {
	opt := options(t)
	limits := chat.DefaultLimits()
	limits.MemoryMax, limits.CPUQuota, limits.CPUPeriod = 512<<20, chat.Duration(time.Second/10), chat.Duration(time.Second/10)
	opt.Profiles["sized"] = chat.Profile{Name: "sized", Limits: limits, Commands: []string{"*"}, Env: map[string]string{"CARGO_BUILD_JOBS": "7"}}
	m := open(t, opt)
	c := create(t, m, "sized", "sized")
	tried := 0
	for _, r := range []struct {
		program, heap string
		least, most   int
	}{
		{"node", `node -p 'require("v8").getHeapStatistics().heap_size_limit'`, 256 << 20, 512 << 20},
		{"java", `java -XX:+PrintFlagsFinal -version 2>/dev/null | awk '$2=="MaxHeapSize" {print $4}'`, 64 << 20, 256 << 20},
		{"java", `java -XX:+PrintFlagsFinal -version 2>/dev/null | awk '$2=="ActiveProcessorCount" {print $4}'`, 1, 1},
		{"node", `node -p 'require("os").cpus().length'`, 1, 1},
		{"node", `node --input-type=module -e 'import {availableParallelism as n} from "os"; console.log(n())'`, 1, 1},
		{"node", `node -p 'require("os").totalmem()'`, 512 << 20, 512 << 20},
		{"python3", `/usr/bin/python3 -c 'import os; print(os.cpu_count())'`, 1, 1},
		{"free", "free -b | awk '/Mem/ {print $2}'", 512 << 20, 512 << 20},
		{"getconf", "getconf _NPROCESSORS_ONLN", 1, 1},
		{"nproc", "nproc", 1, 1},
		{"sh", "echo $GOMEMLIMIT", 256 << 20, 512 << 20},
		{"sh", "echo $GOMAXPROCS", 1, 1},
		{"sh", "echo $CARGO_BUILD_JOBS", 7, 7}, // the profile's
	} {
		if _, err := exec.LookPath(r.program); err != nil {
			t.Logf("the host has no %s", r.program)
			continue
		}
		tried++
		out := strings.TrimSpace(run(t, m, c.ID, r.heap).Stdout)
		if n, err := strconv.Atoi(out); err != nil || n < r.least || n > r.most {
			t.Errorf("%s: %s, want %d to %d", r.heap, out, r.least, r.most)
		}
	}
	expect.True(t, tried >= 5, "want at least nproc and sh to ask")
	if _, err := exec.LookPath("node"); err == nil {
		// It holds 120 MiB, and makes 700 MiB of garbage.
		const garbage = `node -e 'const q=[];for(let i=0;i<10000;i++){q.push(Array.from({length:9000},(_,k)=>k+i+.5));` +
			`if(q.length>1750)q.shift()}console.log("done")'`
		r, err := m.Run(operator(t.Context()), c.ID, chat.RunSpec{Command: garbage, Timeout: tryTimeout})
		expect.True(t, err == nil && r.Stdout == "done\n",
			"garbage: %q, exit %d, %v, %v", r.Stdout, r.Exit, r.Why, err)
	}
	must.Do(t, m.Input(operator(t.Context()), c.ID, chat.Input{Text: `echo "in the terminal: $NODE_OPTIONS"`, Enter: true}))
	waitScreen(t, m, c.ID, "in the terminal: --max-old-space-size=336")
}
