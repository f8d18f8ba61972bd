package front

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/front/api/apitest"
	"github.com/chatd/chatd/front/runs"
	"github.com/chatd/chatd/internal/broker"
	"github.com/chatd/chatd/internal/verbs"
	"github.com/chatd/chatd/provision/listen"
)

// hanging are chats in which a run hangs.
type hanging struct {
	*apitest.Memory
	began   chan struct{} // a run has begun
	cleaned atomic.Bool
}

func (h *hanging) Run(ctx context.Context, _ chat.ID, _ chat.RunSpec, _ verbs.Begun) (chat.RunResult, error) {
	h.began <- struct{}{}
	<-ctx.Done()
	time.Sleep(50 * time.Millisecond) // to end its processes
	h.cleaned.Store(true)
	return chat.RunResult{}, ctx.Err()
}

// An end during a run is not a failure, and takes no longer than the grace; serve cancels the run,
// and waits for its clean-up.
func TestEndCutsRunsOff(t *testing.T) {
	h := &hanging{Memory: apitest.New(), began: make(chan struct{}, 1)}
	var said strings.Builder
	socket := filepath.Join(t.TempDir(), "s")
	l, err := listen.Unix(socket)
	if err != nil {
		t.Fatal(err)
	}
	chats, err := runs.Open(t.Context(), h, runs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer chats.Close()
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		settings := broker.Settings{Operators: []uint32{uint32(os.Getgid())}}
		log := slog.New(slog.NewTextHandler(&said, nil))
		ended <- serve(ctx, l, serverOptions(chats, nil, settings, "1.0", log), 100*time.Millisecond)
	}()
	c := client.NewClient(client.ClientOptions{Socket: socket})
	made, _, err := c.Create(t.Context(), chat.Spec{ExternalID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() {
		spec := chat.RunSpec{Command: "sleep 1000"}
		_, err := c.Run(context.Background(), made.ID, spec)
		result <- err
	}()
	<-h.began
	end()
	if err := <-ended; err != nil {
		t.Errorf("it ends with %v", err)
	}
	if !h.cleaned.Load() {
		t.Error("it did not wait for the run to clean up")
	}
	if err := <-result; err == nil {
		t.Error("the caller was told that the run is done")
	}
	if strings.Count(said.String(), "requests were cut off") != 1 {
		t.Errorf("the log does not say that requests were cut off: %s", said.String())
	}
}

// TestFrontOfAnotherVersion: half an upgrade is refused by name.
func TestFrontOfAnotherVersion(t *testing.T) {
	if err := sameVersion(broker.Settings{Version: "1.0"}, "1.0"); err != nil {
		t.Error(err)
	}
	err := sameVersion(broker.Settings{Version: "0.0"}, "1.0")
	if !errors.Is(err, chat.ErrUnsupported) || !strings.Contains(err.Error(), `"0.0"`) {
		t.Errorf("another version: %v", err)
	}
}
