package provision

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/moby/sys/user"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
)

// account is one Linux user and its group of the same name and number.
type account struct {
	Name string
	ID   uint32
	Home string
}

// accountBackend writes accounts where the Name Service Switch finds them. create and remove
// are idempotent; drift describes how the account differs from what create left.
type accountBackend interface {
	name() string
	create(context.Context, account) error
	drift(account) (string, error)
	remove(context.Context, account) error
}

// The names of the backends, in config and in records.
const (
	backendUserdb  = "userdb"
	backendUseradd = "useradd"
)

// nologin is the shell in the record: only chatd enters a chat, and it starts the session's
// shell itself.
const nologin = "/usr/sbin/nologin"

func (m *Manager) accountOf(rec state.Record) account {
	return account{Name: rec.ID.User(), ID: rec.UID, Home: m.home(rec.ID)}
}

// createAccount writes the account and then looks the user up in the Name Service Switch by
// name and by number: a record that it does not read is no account. Only probeAccount looks
// the group up. For that nss-systemd reads every name in /etc/userdb, 3 ms at 1,000 chats.
//
// The chat's record names the backend, so that removeAccount uses the same one. An empty name
// means userdb: only the slow backend needs a second commit.
func (m *Manager) createAccount(ctx context.Context, rec state.Record) error {
	if m.without(chat.LayerAccount) {
		return nil
	}
	a := m.accountOf(rec)
	backend := m.accountBackendOf(rec)
	if rec.Account == "" && rec.Phase == chat.Creating {
		backend = m.account
	}
	if backend.name() == backendUseradd && rec.Account == "" {
		if err := m.store.SetAccount(rec.ID, backendUseradd, m.event(ctx, rec, "create", "intent", map[string]string{"account": backendUseradd})); err != nil {
			return err
		}
	}
	if err := backend.create(ctx, a); err != nil || slices.Contains(m.opt.AllowMissing, chat.LayerAccount) {
		return err
	}
	return getent(ctx, "passwd", a, a.passwd(), passwdLine)
}

func (m *Manager) driftAccount(_ context.Context, rec state.Record) (string, error) {
	if m.without(chat.LayerAccount) {
		return "", nil
	}
	return m.accountBackendOf(rec).drift(m.accountOf(rec))
}

func (m *Manager) removeAccount(ctx context.Context, rec state.Record) error {
	// rec may be older than the backend that createAccount has stored.
	if now, err := m.store.Get(rec.ID); err == nil {
		rec = now
	}
	return m.accountBackendOf(rec).remove(ctx, m.accountOf(rec))
}

func (m *Manager) accountBackendOf(rec state.Record) accountBackend {
	if rec.Account == backendUseradd {
		return m.useradd
	}
	return m.userdb
}

// verifyNSS looks up the name, the uid and the group with getent(1), which sees what every
// other program of the host sees. In a Go binary without cgo os/user does not see userdb
// records.
func verifyNSS(ctx context.Context, a account) error {
	wantGroup := fmt.Sprintf("%s:%d", a.Name, a.ID)
	group := make(chan error, 1)
	go func() { group <- getent(ctx, "group", a, wantGroup, groupLine) }()
	err := getent(ctx, "passwd", a, a.passwd(), passwdLine)
	return errors.Join(err, <-group)
}

// passwd is the result of passwdLine for the account's own line.
func (a account) passwd() string { return fmt.Sprintf("%s:%d:%d:%s", a.Name, a.ID, a.ID, a.Home) }

// getent looks up the name and the number in one call and compares both answers with want.
func getent(ctx context.Context, database string, a account, want string, form func([]string) string) error {
	out, err := exec.CommandContext(ctx, "getent", database, a.Name, fmt.Sprint(a.ID)).Output()
	if err != nil {
		return fmt.Errorf("cannot find %s %s by name and by number: getent %s: %w", database, a.Name, database, err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != 2 || form(strings.Split(lines[0], ":")) != want || form(strings.Split(lines[1], ":")) != want {
		return fmt.Errorf("cannot use account %s: getent %s says %q, want %s twice", a.Name, database, out, want)
	}
	return nil
}

func passwdLine(f []string) string {
	if len(f) != 7 {
		return ""
	}
	return strings.Join([]string{f[0], f[2], f[3], f[5]}, ":")
}

func groupLine(f []string) string {
	if len(f) != 4 {
		return ""
	}
	return f[0] + ":" + f[2]
}

// unknownToNSS reports whether neither the name nor the number resolves any more. getent(1)
// prints the entries of those keys that resolve, and fails when one does not.
func unknownToNSS(ctx context.Context, a account) bool {
	for _, database := range []string{"passwd", "group"} {
		out, err := exec.CommandContext(ctx, "getent", database, a.Name, fmt.Sprint(a.ID)).Output()
		if err == nil || len(out) > 0 {
			return false
		}
	}
	return true
}

// chooseAccount picks the backend: the configured one, or userdb if the host resolves a record
// that chatd writes now, else useradd.
func (m *Manager) chooseAccount(ctx context.Context) error {
	switch m.opt.Account {
	case backendUseradd:
		m.account = m.useradd
		return nil
	case backendUserdb, "auto", "":
	default:
		return fmt.Errorf("cannot use account backend %q: want auto, userdb or useradd: %w", m.opt.Account, chat.ErrInvalid)
	}
	if err := m.userdb.prepare(); err != nil && !cannotTell(err) {
		return err
	}
	err := m.probeAccount(ctx)
	m.resolved = err == nil
	if err == nil || m.opt.Account == backendUserdb || cannotTell(err) {
		return nil // where the host could not be tried, the layer's probe reports it
	}
	m.log.Warn("userdb records are not resolved here, using useradd", "why", err)
	m.account = m.useradd
	return nil
}

// probeName is the account that probes make and remove; its uid is the last of
// the range, which no chat ever gets.
const probeName = chat.UserPrefix + "probe"

func (m *Manager) probeUID() uint32 { return m.opt.UIDs.High }

// probeAccount makes an account, resolves it, and removes it again.
func (m *Manager) probeAccount(ctx context.Context) error {
	a := account{Name: probeName, ID: m.probeUID(), Home: "/nonexistent"}
	err := m.account.create(ctx, a)
	if err == nil {
		err = verifyNSS(ctx, a)
	}
	err = errors.Join(err, m.account.remove(ctx, a))
	if err == nil && !unknownToNSS(ctx, a) {
		err = fmt.Errorf("cannot remove account %s: it still resolves", a.Name)
	}
	return err
}

// checkUIDRange refuses a range that overlaps a user, a group or a subordinate range of the
// host. useradd(8) does not check the latter (shadow#525), and chatd's packet rules and
// removals match by uid.
func checkUIDRange(r state.Range) error {
	if r.Low < 1<<16 || r.High <= r.Low || r.High-r.Low < 32 || r.High >= 1<<31 {
		return fmt.Errorf("cannot use uids %d-%d: want at least 33 of them within 65536-2147483647: %w", r.Low, r.High, chat.ErrInvalid)
	}
	own := func(name string) bool { return strings.HasPrefix(name, chat.UserPrefix) }
	in := func(id int) bool { return id >= int(r.Low) && id <= int(r.High) }
	users, err := user.ParsePasswdFileFilter("/etc/passwd", func(u user.User) bool { return (in(u.Uid) || in(u.Gid)) && !own(u.Name) })
	if err != nil {
		return fmt.Errorf("cannot read the host's users: %w", err)
	}
	groups, err := user.ParseGroupFileFilter("/etc/group", func(g user.Group) bool { return in(g.Gid) && !own(g.Name) })
	if err != nil {
		return fmt.Errorf("cannot read the host's groups: %w", err)
	}
	var met []string
	for _, u := range users {
		met = append(met, "user "+u.Name+" in /etc/passwd")
	}
	for _, g := range groups {
		met = append(met, "group "+g.Name+" in /etc/group")
	}
	sub, err := subordinates(r)
	if met = append(met, sub...); len(met) > 0 {
		return fmt.Errorf("cannot use uids %d-%d: they meet %s; set uids to a free range: %w", r.Low, r.High, strings.Join(met, ", "), chat.ErrInvalid)
	}
	return err
}

func subordinates(r state.Range) ([]string, error) {
	var met []string
	for _, file := range []string{"/etc/subuid", "/etc/subgid"} {
		ranges, err := user.ParseSubIDFileFilter(file, func(s user.SubID) bool {
			return s.SubID <= int64(r.High) && s.SubID+s.Count > int64(r.Low)
		})
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("cannot read %s: %w", file, err)
		}
		for _, s := range ranges {
			met = append(met, fmt.Sprintf("%s's %d-%d in %s", s.Name, s.SubID, s.SubID+s.Count-1, file))
		}
	}
	return met, nil
}

// runTool runs a program of the host with a clean environment and returns its
// message when it fails with a code that is not among ok.
func runTool(ctx context.Context, ok []int, name string, args ...string) error {
	c := exec.CommandContext(ctx, name, args...)
	c.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && slices.Contains(ok, exit.ExitCode()) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot run %s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out.Bytes()))
	}
	return nil
}
