package roottest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// onSmallDisks puts a small file system under the state and another under the homes.
func onSmallDisks(t *testing.T, opt provision.Options) {
	t.Helper()
	if onHost() {
		t.Skip("the state's directory is a mount that PAM knows: test/vagrant fills the machine's own disk")
	}
	for _, dir := range []string{opt.State, opt.Homes} {
		must.Do(t, os.MkdirAll(dir, 0o711))
		must.Do(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=24m,nr_inodes=4000,mode=711"))
		t.Cleanup(func() { must.Do(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	}
}

func remount(t *testing.T, opt provision.Options, flags uintptr) {
	t.Helper()
	for _, dir := range []string{opt.State, opt.Homes} {
		must.Do(t, unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT|flags, "size=24m,nr_inodes=4000,mode=711"))
	}
}

// takeAll leaves no block, or no inode, on the file system of dir.
func takeAll(t *testing.T, dir string, inodes bool) {
	t.Helper()
	var err error
	for i := 0; err == nil && inodes; i++ {
		err = os.WriteFile(filepath.Join(dir, fmt.Sprint("fill", i)), nil, 0o600)
	}
	for size := 1 << 20; size > 0 && !inodes; size /= 16 { // to the last byte
		for err = nil; err == nil; {
			err = appendTo(filepath.Join(dir, "fill"), make([]byte, size))
		}
	}
	must.True(t, errors.Is(err, unix.ENOSPC), "%s is not full: %v", dir, err)
}

func appendTo(file string, b []byte) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

// TestAttackFullRestart: A fills every file system that chatd writes to, and chatd is started
// again. It comes up, shows, sleeps and reaps; that nothing can be tried is not that nothing
// holds; and as soon as A is reaped everything goes on for B.
func TestAttackFullRestart(t *testing.T) {
	for name, inodes := range map[string]bool{"bytes": false, "inodes": true} {
		t.Run(name, func(t *testing.T) {
			opt := options(t)
			onSmallDisks(t, opt)
			m, err := openManager(t.Context(), opt)
			must.Do(t, err)
			a, b := create(t, m, "full a", "default"), create(t, m, "full b", "default")
			tmp, _ := privateTrees(opt, a)
			takeAll(t, a.Home, inodes)
			takeAll(t, tmp, inodes)
			must.Do(t, m.Close())

			m, err = openManager(t.Context(), opt)
			must.True(t, err == nil, "chatd does not start on a full disk: %v", err)
			defer func() { must.Do(t, m.Close()) }()
			ctx := operator(t.Context())
			if got, err := m.Get(ctx, b.ID); err != nil || !got.Awake {
				t.Errorf("B is %+v, %v", got, err)
			}
			h, err := m.Host(ctx)
			expect.True(t, err == nil && len(h.Missing) == 0, "missing %v, %v", h.Missing, err)
			if got, err := m.Sleep(ctx, b.ID); err != nil || got.Awake {
				t.Errorf("sleep: %+v, %v", got, err)
			}
			if _, _, err := m.Create(ctx, chat.Spec{ExternalID: "full c"}); !errors.Is(err, chat.ErrBusy) && !errors.Is(err, unix.ENOSPC) {
				t.Errorf("create on a full disk: %v", err)
			}
			must.Do(t, m.Reap(ctx, a.ID))
			until(t, "B can wake", func() bool { _, err = m.Wake(ctx, b.ID); return err == nil || !errors.Is(err, chat.ErrBusy) })
			must.Do(t, err)
			if got := run(t, m, b.ID, "echo on"); got.Stdout != "on\n" {
				t.Errorf("%+v", got)
			}
			must.Do(t, m.Reap(ctx, b.ID))
		})
	}
}

// TestReadOnlyRestart: on file systems that went read-only chatd comes up, shows and sleeps, and
// says why it can do no more; mounted read-write again, it goes on.
func TestReadOnlyRestart(t *testing.T) {
	opt := options(t)
	onSmallDisks(t, opt)
	m, err := openManager(t.Context(), opt)
	must.Do(t, err)
	a := create(t, m, "read-only", "default")
	must.Do(t, m.Close())
	remount(t, opt, unix.MS_RDONLY)
	m, err = openManager(t.Context(), opt)
	must.True(t, err == nil, "chatd does not start on a read-only disk: %v", err)
	ctx := operator(t.Context())
	if got, err := m.Get(ctx, a.ID); err != nil || !got.Awake {
		t.Errorf("it is %+v, %v", got, err)
	}
	if got, err := m.Sleep(ctx, a.ID); err != nil || got.Awake {
		t.Errorf("sleep: %+v, %v", got, err)
	}
	h, err := m.Host(ctx)
	if err != nil || len(h.Missing) > 0 || !strings.Contains(strings.Join(h.Findings, "\n"), "read-only") {
		t.Errorf("%+v, %v", h, err)
	}
	_, _, created := m.Create(ctx, chat.Spec{ExternalID: "more"})
	for what, err := range map[string]error{"create": created, "reap": m.Reap(ctx, a.ID)} {
		if !errors.Is(err, chat.ErrBusy) || !strings.Contains(err.Error(), "read-only") && !strings.Contains(err.Error(), "read-write") {
			t.Errorf("%s on a read-only disk: %v", what, err)
		}
	}
	must.Do(t, m.Close())
	remount(t, opt, 0)
	m = must.Get(openManager(t.Context(), opt))(t)
	must.Do(t, errors.Join(m.Reap(ctx, a.ID), m.Close()))
}

// TestFullStateIsSaid: where the file system of the state is full, status, doctor and /healthz say so
// as long as it is.
func TestFullStateIsSaid(t *testing.T) {
	opt := options(t)
	onSmallDisks(t, opt)
	m := open(t, opt)
	serveOver(t, m, opt)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return net.Dial("unix", filepath.Join(opt.Run, "bench.sock"))
		}}}
	says := func(when string, full bool) {
		t.Helper()
		st := must.Get(m.Status(operator(t.Context())))(t)
		h := must.Get(m.Host(operator(t.Context())))(t)
		const why = "the file system of chatd's state directory is full"
		found := strings.Contains(strings.Join(st.Findings, "\n"), why)
		broken := strings.Contains(strings.Join(h.Broken, "\n"), why)
		expect.True(t, st.Ready != full && found == full && broken == full,
			"%s: ready %v, findings %q, broken %q", when, st.Ready, st.Findings, h.Broken)
		a := must.Get(client.Get("http://chatd/healthz"))(t)
		must.Do(t, a.Body.Close())
		if want := map[bool]int{true: 503, false: 200}[full]; a.StatusCode != want {
			t.Errorf("%s: /healthz is %d, want %d", when, a.StatusCode, want)
		}
	}
	says("before", false)
	takeAll(t, opt.State, false)
	says("full", true)
	must.Do(t, os.Remove(filepath.Join(opt.State, "fill")))
	says("after", false)
}
