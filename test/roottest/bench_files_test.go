package roottest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/front/api"
	"github.com/chatd/chatd/front/runs"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/provision/listen"
	"github.com/chatd/chatd/test/must"
)

// BenchmarkFiles measures the file tools over the API, in a chat that is awake and in
// one that is asleep, beside a plain read and a plain synced write by root, in turn
// in one run: read the ratios. A call costs a process behind its walls, whatever it
// moves; beside that a byte costs two pipes and a socket.
//
//	go test ./test/roottest -run - -bench BenchmarkFiles -benchtime 1x
func BenchmarkFiles(b *testing.B) {
	opt := attackOptions(b) // else the large ones measure the quota
	m := open(b, opt)
	d := serveOver(b, m, opt)
	awake, sleeper := create(b, m, "bench awake", "default"), asleep(b, m, "bench asleep")
	rounds := envInt("CHATD_BENCH_ROUNDS", 25)
	for _, size := range []int{4 << 10, 16 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			content := bytes.Repeat([]byte("x"), size)
			plain := filepath.Join(filepath.Dir(opt.Homes), "plain")
			t := table{}
			for range rounds {
				t.time("plain write", func() { must.Do(b, plainWrite(plain, content)) })
				t.time("plain read", func() { must.Get(os.ReadFile(plain))(b) })
				for phase, c := range map[string]chat.Chat{"awake": awake, "asleep": sleeper} {
					t.time("write "+phase, func() {
						must.Get(d.WriteFile(b.Context(), c.ID, filewire.WriteFile{Path: "f", Stream: true}, bytes.NewReader(content)))(b)
					})
					t.time("read "+phase, func() {
						must.Get(d.ReadFile(b.Context(), c.ID, filewire.ReadFile{Path: "f", Stream: true}, func(filewire.Answer) io.Writer { return io.Discard }))(b)
					})
				}
				t.time("run of cat", func() { run(b, m, awake.ID, "cat f >/dev/null") })
			}
			for _, what := range []string{"read awake", "read asleep", "run of cat"} {
				t.say(b, what, "plain read")
			}
			t.say(b, "write awake", "plain write")
			t.say(b, "write asleep", "plain write")
		})
	}
}

// plainWrite is a write that is as durable as the tool's.
func plainWrite(name string, content []byte) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(content); err != nil {
		return err
	}
	return f.Sync()
}

// serveOver serves m on a socket of its own, and asks there.
func serveOver(t testing.TB, m *manager, opt provision.Options) *client.Client {
	t.Helper()
	socket := filepath.Join(opt.Run, "bench.sock")
	l := must.Get(listen.Unix(socket))(t)
	s := api.NewServer(api.ServerOptions{Chats: clocked(t, m, runs.Options{})})
	done := going(func() error { return s.Serve(l) })
	t.Cleanup(func() {
		must.Do(t, s.Shutdown(context.Background()))
		must.Do(t, <-done)
	})
	return client.NewClient(client.ClientOptions{Socket: socket})
}
