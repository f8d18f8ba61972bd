package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/front/api/apitest"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// archivable is a chat with labels, a schedule and a variable, and a label that a terminal obeys.
func archivable(
	t *testing.T, opt ServerOptions,
) (socket string, mem *apitest.Memory, c *client.Client, made chat.Chat) {
	t.Helper()
	opt.NameOf = func(uint32) (string, error) { return "root", nil }
	socket, mem = start(t, opt)
	c = clientAt(t, socket)
	made = must.First(c.Create(t.Context(), chat.Spec{
		ExternalID: "a", Profile: "web", Labels: map[string]string{"team": "ops\x1b[2J"},
	}))(t)
	spec := chat.ScheduleSpec{Every: chat.MinEvery, Command: "true"}
	must.Do(t, expect.Err(c.AddSchedule(t.Context(), made.ID, spec)))
	return socket, mem, c, made
}

// TestArchiveAndBack: an archived chat is gone, is listed, and comes back with the same id, labels,
// profile and schedules, and another uid.
func TestArchiveAndBack(t *testing.T) {
	_, _, c, made := archivable(t, ServerOptions{})
	ctx := t.Context()
	a, err := c.Archive(ctx, made.ID, chat.ToArchive{})
	must.True(t, err == nil && !a.Kept && a.Chat == made.ID && a.Name.ID() == made.ID, "%+v, %v", a, err)
	expect.Is(t, expect.Err(c.Get(ctx, made.ID)), chat.ErrNotFound, "the chat")
	check, err := c.VerifyArchive(ctx, a.Name)
	expect.True(t, err == nil && check.Name == a.Name && check.Size != 0, "verify: %+v, %v", check, err)
	back, err := c.Unarchive(ctx, a.Name)
	if err != nil || back.ID != made.ID || back.UID == made.UID || back.Awake ||
		back.Profile != made.Profile || !maps.Equal(back.Labels, made.Labels) {
		t.Errorf("unarchive: %+v, %v", back, err)
	}
	if s, err := c.Schedules(ctx, made.ID); err != nil || len(s.Schedules) != 1 {
		t.Errorf("schedules: %+v, %v", s, err)
	}
	expect.Is(t, expect.Err(c.Unarchive(ctx, a.Name)), chat.ErrExists, "a chat that exists")
	kept, err := c.Archive(ctx, made.ID, chat.ToArchive{Keep: true})
	expect.True(t, err == nil && kept.Kept && kept.Name != a.Name, "keep: %+v, %v", kept, err)
	if _, err := c.Get(ctx, made.ID); err != nil {
		t.Errorf("keep: %v", err)
	}
	list, err := c.Archives(ctx, chat.ArchiveFilter{Chat: made.ID, Owner: "root", ExternalID: "a"})
	expect.True(t, err == nil && len(list) == 2 && list[0].Name == a.Name && list[1].Name == kept.Name,
		"list: %+v, %v", list, err)
	expect.NoError(t, c.RemoveArchive(ctx, a.Name))
	expect.Is(t, expect.Err(c.VerifyArchive(ctx, a.Name)), chat.ErrNotFound, "removed")
}

// TestArchiveFilters: each narrows the list, and a list of none is not a null.
func TestArchiveFilters(t *testing.T) {
	socket, _, c, made := archivable(t, ServerOptions{})
	must.Do(t, expect.Err(c.Archive(t.Context(), made.ID, chat.ToArchive{Keep: true})))
	for f, want := range map[chat.ArchiveFilter]int{
		{}: 1, {Owner: "root"}: 1, {Owner: "ada"}: 0, {ExternalID: "a"}: 1, {ExternalID: "b"}: 0,
		{Chat: made.ID}: 1, {Chat: someID}: 0,
	} {
		list, err := c.Archives(t.Context(), f)
		expect.True(t, err == nil && len(list) == want, "%+v: %+v, %v", f, list, err)
	}
	g := raw(t, socket, get("/v1/archives?owner=ada"))
	expect.True(t, g.status == 200 && strings.TrimSpace(g.body) == `{"archives":[]}`,
		"none: %d %s", g.status, g.body)
}

// TestReapArchives: DELETE answers with the archive if it is asked for one, and else with nothing.
func TestReapArchives(t *testing.T) {
	socket, _, c, made := archivable(t, ServerOptions{})
	var a chat.Archive
	at := "/v1/chats/" + string(made.ID)
	g := raw(t, socket, bare("DELETE", at+"?archive=true"))
	if err := json.Unmarshal([]byte(g.body), &a); err != nil || g.status != 200 || a.Chat != made.ID {
		t.Fatalf("%d %s %v", g.status, g.body, err)
	}
	must.Do(t, expect.Err(c.Unarchive(t.Context(), a.Name)))
	if g := raw(t, socket, bare("DELETE", at+"?archive=false")); g.status != 204 || g.body != "" {
		t.Errorf("%d %q", g.status, g.body)
	}
	if list, err := c.Archives(t.Context(), chat.ArchiveFilter{}); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestNoArchiveNoReap: a chat whose archive fails is there.
func TestNoArchiveNoReap(t *testing.T) {
	socket, mem, c, made := archivable(t, ServerOptions{})
	mem.OnArchive = func(context.Context) error {
		return fmt.Errorf("cannot archive: %w", chat.ErrBusy)
	}
	g := raw(t, socket, bare("DELETE", "/v1/chats/"+string(made.ID)+"?archive=true"))
	_, err := c.Get(t.Context(), made.ID)
	expect.True(t, err == nil && g.status == 503, "%d %s, %v", g.status, g.body, err)
}

// archiveCalls are those that may take hours.
func archiveCalls(
	c *client.Client, id chat.ID, name chat.ArchiveName,
) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"archive": func(ctx context.Context) error {
			_, err := c.Archive(ctx, id, chat.ToArchive{Keep: true})
			return err
		},
		"verify": func(ctx context.Context) error { _, err := c.VerifyArchive(ctx, name); return err },
		"reap": func(ctx context.Context) error {
			_, err := c.ReapArchived(ctx, id)
			return err
		},
		"unarchive": func(ctx context.Context) error { _, err := c.Unarchive(ctx, name); return err },
	}
}

// TestArchivesOutliveTimeouts: no timeout of a connection ends a call that takes long.
func TestArchivesOutliveTimeouts(t *testing.T) {
	const short = 250 * time.Millisecond
	opt := ServerOptions{BodyTimeout: short, WriteTimeout: short, IdleTimeout: short}
	_, mem, c, made := archivable(t, opt)
	a := must.Get(c.Archive(t.Context(), made.ID, chat.ToArchive{Keep: true}))(t)
	mem.OnArchive = func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return fmt.Errorf("cancelled: %w", ctx.Err())
		case <-time.After(4 * short):
			return nil
		}
	}
	calls := archiveCalls(c, made.ID, a.Name)
	must.True(t, len(calls) == 4, "%d calls", len(calls))
	for _, name := range []string{"archive", "verify", "reap", "unarchive"} {
		err := calls[name](t.Context())
		expect.True(t, err == nil, "%s: %v", name, err)
	}
}

// TestArchivesEndWithTheClient: a client that goes away cancels the call.
func TestArchivesEndWithTheClient(t *testing.T) {
	_, mem, c, made := archivable(t, ServerOptions{})
	a := must.Get(c.Archive(t.Context(), made.ID, chat.ToArchive{Keep: true}))(t)
	calls := archiveCalls(c, made.ID, a.Name)
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		mem.OnArchive = func(ctx context.Context) error {
			cancel()
			select {
			case <-ctx.Done():
				ended <- nil
			case <-time.After(generous):
				ended <- errors.New("it went on")
			}
			return ctx.Err()
		}
		expect.Is(t, calls[name](ctx), context.Canceled, "%s", name)
		err := <-ended
		expect.True(t, err == nil, "%s: %v", name, err)
		cancel()
	}
}

// TestClientSendsNoOddArchive: a name that would be another path is not sent.
func TestClientSendsNoOddArchive(t *testing.T) {
	c := clientAt(t, t.TempDir()+"/none")
	for _, name := range []chat.ArchiveName{
		"", "..", "../chats/" + someID, someID, someID + "-x", someID + "-20261125T160000Z/verify",
	} {
		_, verify := c.VerifyArchive(t.Context(), name)
		_, back := c.Unarchive(t.Context(), name)
		for _, err := range []error{verify, back, c.RemoveArchive(t.Context(), name)} {
			expect.True(t, errors.Is(err, chat.ErrInvalid), "%q: %v", name, err)
		}
	}
}
