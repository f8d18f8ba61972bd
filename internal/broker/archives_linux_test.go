package broker

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/api/apitest"
	"github.com/chatd/chatd/internal/verbs"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestArchivesCross: each call about archives reaches chatd-root, and its answer the front.
func TestArchivesCross(t *testing.T) {
	d := serve(t)
	ctx := operator(t)
	made := must.First(d.Create(ctx, chat.Spec{ExternalID: "a"}))(t)
	a, err := d.Archive(ctx, made.ID, chat.ToArchive{Keep: true})
	expect.True(t, err == nil && a.Kept && a.Chat == made.ID, "%+v, %v", a, err)
	for f, want := range map[chat.ArchiveFilter]int{
		{}: 1, {Chat: made.ID}: 1, {Chat: "0123456789abcdef"}: 0, {Owner: "ada"}: 0,
	} {
		list, err := d.Archives(ctx, f)
		expect.True(t, err == nil && len(list) == want, "%+v: %+v, %v", f, list, err)
	}
	if check, err := d.VerifyArchive(ctx, a.Name); err != nil || check.Name != a.Name {
		t.Errorf("%+v, %v", check, err)
	}
	expect.Is(t, expect.Err(d.Unarchive(ctx, a.Name)), chat.ErrExists, "unarchive")
	expect.NoError(t, d.RemoveArchive(ctx, a.Name))
	expect.NoError(t, d.end(t))
}

// watching is a chatd-root that notes the names and chats of archives that reach it.
type watching struct {
	verbs.Root
	reached *[]string
}

func (w watching) Archives(_ context.Context, f chat.ArchiveFilter) ([]chat.Archive, error) {
	*w.reached = append(*w.reached, "filter "+string(f.Chat))
	return nil, nil
}

func (w watching) VerifyArchive(
	_ context.Context, name chat.ArchiveName,
) (chat.ArchiveCheck, error) {
	*w.reached = append(*w.reached, string(name))
	return chat.ArchiveCheck{}, nil
}

func (w watching) Unarchive(_ context.Context, name chat.ArchiveName) (chat.Chat, error) {
	*w.reached = append(*w.reached, string(name))
	return chat.Chat{}, nil
}

func (w watching) RemoveArchive(_ context.Context, name chat.ArchiveName) error {
	*w.reached = append(*w.reached, string(name))
	return nil
}

// TestAttackArchiveNames: a compromised front that sends a path for the name of an archive does not
// reach what makes a path of it.
func TestAttackArchiveNames(t *testing.T) {
	var reached []string
	d := serveRoot(t, watching{apitest.New(), &reached})
	ctx := operator(t)
	for _, name := range []string{
		"", "..", "../../../etc/shadow", "/etc/shadow", "0123456789abcdef",
		strings.Repeat("a", 1<<20),
		"0123456789abcdef-20261125T160000Z/../x", "0123456789abcdef-20261125T160000Z\x00",
		"0123456789ABCDEF-20261125T160000Z", "0123456789abcdef-20261125T160000z",
	} {
		_, verify := d.VerifyArchive(ctx, chat.ArchiveName(name))
		_, back := d.Unarchive(ctx, chat.ArchiveName(name))
		remove := d.RemoveArchive(ctx, chat.ArchiveName(name))
		for _, err := range []error{verify, back, remove} {
			expect.True(t, errors.Is(err, chat.ErrInvalid), "%.40q: %v", name, err)
		}
	}
	_, err := d.Archives(ctx, chat.ArchiveFilter{Chat: "../x"})
	expect.True(t, errors.Is(err, chat.ErrInvalid), "a filter: %v", err)
	expect.True(t, len(reached) == 0, "reached chatd-root: %q", reached)
	expect.NoError(t, d.end(t))
}

// TestArchiveEndsWithTheCaller: a caller that goes away ends an archive in chatd-root, which has no
// other limit of time.
func TestArchiveEndsWithTheCaller(t *testing.T) {
	d := serve(t)
	made, _, err := d.Create(operator(t), chat.Spec{ExternalID: "a"})
	must.Do(t, err)
	ctx, cancel := context.WithCancel(operator(t))
	limits := make(chan bool, 1)
	d.mem.OnArchive = func(root context.Context) error {
		_, limited := root.Deadline()
		limits <- limited
		cancel()
		select {
		case <-root.Done():
			return root.Err()
		case <-time.After(time.Minute):
			return errors.New("it went on")
		}
	}
	_, err = d.Archive(ctx, made.ID, chat.ToArchive{})
	expect.True(t, errors.Is(err, context.Canceled) && !strings.Contains(err.Error(), "it went on"),
		"got %v", err)
	if <-limits {
		t.Error("the call has a limit of time")
	}
	if _, err := d.Get(operator(t), made.ID); err != nil {
		t.Errorf("the chat: %v", err)
	}
	expect.NoError(t, d.end(t))
}
