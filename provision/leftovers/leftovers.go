package leftovers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/audit"
	"github.com/chatd/chatd/provision/safefs"
	"github.com/chatd/chatd/state"
)

// zombieTimeout is how long the zombies of other programs' children are waited for.
const zombieTimeout = time.Second

// Remove removes processes, System V objects, keys and spool files of the uid, and of the user
// of that name, outside the chat's own trees. The chat itself cannot make most of them; an operator
// who ran a command as the chat may have left some.
func Remove(ctx context.Context, user string, uid uint32) error {
	return errors.Join(
		killUID(ctx, uid),
		removeSysVIPC(uid),
		removeKeys(ctx, uid),
		removeSpool(user, uid),
		RemoveJournals(func(u uint32) bool { return u == uid }),
	)
}

// killUID kills every process of the uid, in any cgroup or namespace, until none is left. It
// reaps the zombies among this daemon's children; for others' zombies it waits zombieTimeout.
func killUID(ctx context.Context, uid uint32) error {
	for end := time.Now().Add(zombieTimeout); ; {
		living, dead, err := sys.PidsOf(uid)
		if err != nil || len(living)+len(dead) == 0 || len(living) == 0 && time.Now().After(end) {
			return err
		}
		for _, pid := range living {
			if err := killPid(pid, uid); err != nil {
				return err
			}
		}
		if err := sys.CollectOrphans(uid); err != nil {
			return err
		}
		if chat.Sleep(ctx, 5*time.Millisecond) != nil {
			return fmt.Errorf("cannot end the processes %v of uid %d: %w", living, uid, ctx.Err())
		}
	}
}

// killPid checks the owner again before it kills, so that it never hits a recycled pid.
func killPid(pid int, uid uint32) error {
	return sys.Signal(pid, unix.SIGKILL, func() bool {
		u, err := sys.UIDOf(pid)
		return err == nil && u == uid
	})
}

// removeSysVIPC removes the uid's System V objects from the host's IPC namespace (sysvipc(7)).
// Those of a session ended with its own namespace.
func removeSysVIPC(uid uint32) error {
	var errs []error
	for _, kind := range []struct {
		file   string
		sysno  uintptr
		uidCol int
	}{
		{"shm", unix.SYS_SHMCTL, 7}, {"sem", unix.SYS_SEMCTL, 4}, {"msg", unix.SYS_MSGCTL, 7},
	} {
		ids, err := sysVIDs("/proc/sysvipc/"+kind.file, uid, kind.uidCol)
		errs = append(errs, err)
		for _, id := range ids {
			args := [3]uintptr{uintptr(id), unix.IPC_RMID, 0}
			if kind.file == "sem" {
				args[1], args[2] = 0, unix.IPC_RMID
			}
			if _, _, e := unix.Syscall(kind.sysno, args[0], args[1], args[2]); e != 0 && e != unix.EINVAL && e != unix.EIDRM {
				errs = append(errs, fmt.Errorf("cannot remove System V %s %d of uid %d: %w", kind.file, id, uid, e))
			}
		}
	}
	return errors.Join(errs...)
}

// sysVIDs lists the ids whose owner or creator (the column after next) is uid.
func sysVIDs(file string, uid uint32, uidCol int) (ids []int, err error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list System V objects: %w", err)
	}
	want := strconv.FormatUint(uint64(uid), 10)
	for line := range strings.Lines(string(b)) {
		c := strings.Fields(line)
		if len(c) <= uidCol+2 || c[uidCol] != want && c[uidCol+2] != want {
			continue
		}
		id, err := strconv.Atoi(c[1])
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", file, err)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// Bounds on how long the kernel takes to collect the session keyrings of ended processes, and
// then the invalidated user keyrings.
const (
	sessionKeysTimeout = 200 * time.Millisecond
	userKeysTimeout    = 5 * time.Second
)

// removeKeys removes every key of the uid: its user keyrings would outlive its processes
// (keyrings(7)).
func removeKeys(ctx context.Context, uid uint32) error {
	has, err := waitForKeys(ctx, uid, sessionKeysTimeout)
	if err != nil || !has {
		return err
	}
	if err := sys.AsUID(uid, dropUserKeyrings); err != nil {
		return fmt.Errorf("cannot take away the user keyrings of uid %d: %w", uid, err)
	}
	has, err = waitForKeys(ctx, uid, userKeysTimeout)
	if err == nil && has {
		err = fmt.Errorf("cannot take away the keys of uid %d: they are in /proc/key-users after %s", uid, userKeysTimeout)
	}
	return err
}

// waitForKeys waits until the uid has no key, no longer than timeout, and reports whether it has.
func waitForKeys(ctx context.Context, uid uint32, timeout time.Duration) (has bool, err error) {
	for deadline := time.Now().Add(timeout); ; {
		has, err := hasKeys(uid)
		if err != nil || !has || time.Now().After(deadline) {
			return has, err
		}
		if chat.Sleep(ctx, 2*time.Millisecond) != nil {
			return has, fmt.Errorf("cannot wait for the keys of uid %d: %w", uid, ctx.Err())
		}
	}
}

func hasKeys(uid uint32) (bool, error) {
	b, err := os.ReadFile("/proc/key-users")
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot list key users: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		if owner, _, _ := strings.Cut(strings.TrimSpace(line), ":"); owner == strconv.FormatUint(uint64(uid), 10) {
			return true, nil
		}
	}
	return false, nil
}

// dropUserKeyrings runs as the uid: only a keyring's possessor may clear and invalidate it. It
// resolves the ids first, because the use of one special id creates both keyrings. The persistent
// keyring (persistent-keyring(7)), which Kerberos uses, is made if it is not there.
func dropUserKeyrings() error {
	user, err1 := unix.KeyctlGetKeyringID(unix.KEY_SPEC_USER_KEYRING, false)
	session, err2 := unix.KeyctlGetKeyringID(unix.KEY_SPEC_USER_SESSION_KEYRING, false)
	errs, ids := []error{err1, err2}, []int{session, user}
	const own, here = -1, unix.KEY_SPEC_PROCESS_KEYRING
	persistent, err := unix.KeyctlInt(unix.KEYCTL_GET_PERSISTENT, own, here, 0, 0)
	if err == nil {
		ids = append(ids, persistent)
	} else if err != unix.EOPNOTSUPP { // the kernel is without them
		errs = append(errs, err)
	}
	for _, id := range ids {
		for _, op := range []int{unix.KEYCTL_CLEAR, unix.KEYCTL_INVALIDATE} {
			if _, err := unix.KeyctlInt(op, id, 0, 0, 0); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// removeSpool removes the files of other daemons for the user, such as cron's. Those daemons
// would act for the next user of that name or uid.
func removeSpool(user string, uid uint32) error {
	n := strconv.FormatUint(uint64(uid), 10)
	var errs []error
	for _, p := range []string{
		"/var/spool/cron/crontabs/" + user, "/var/mail/" + user, "/var/lib/systemd/linger/" + user,
	} {
		if err := os.Remove(p); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("cannot remove %s: %w", p, err))
		}
	}
	errs = append(errs, removeOwned("/var/spool/cron/atjobs", uid), removeOwned("/var/spool/cron/atspool", uid),
		removeOwned("/dev/mqueue", uid), removeOwned("/dev/shm", uid))
	if _, err := os.Lstat("/run/user/" + n); err == nil {
		errs = append(errs, safefs.Remove("/run/user", n))
	}
	return errors.Join(errs...)
}

// removeOwned removes the files that uid owns directly in a directory of the host.
func removeOwned(dir string, uid uint32) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot list %s: %w", dir, err)
	}
	var errs []error
	for _, e := range entries {
		fi, err := e.Info()
		if err != nil {
			continue
		}
		if u, _ := sys.OwnerOf(fi); u == uid {
			errs = append(errs, safefs.Remove(dir, filepath.Base(e.Name())))
		}
	}
	return errors.Join(errs...)
}

// Files of the chat's uid may lie outside the chat's own trees: in a directory that an operator
// exposed for writing, or where a user of the host ran a command as the chat. They may be wanted
// work, so reap leaves them, and reports their paths. The uid is never assigned again.

// Reaping removes what reaped chats leave, and reports what it leaves.
type Reaping struct {
	Store *state.Store
	Trail *audit.Trail
	Log   *slog.Logger
}

// Remove removes what the chat's uid has outside the chat's own trees, except for files that may be
// wanted. Journals of earlier chats go too: journald makes one anew that it had open. writable are
// the paths of the host to which the chat could write.
func (r Reaping) Remove(ctx context.Context, rec state.Record, writable []string) error {
	err := Remove(ctx, rec.ID.User(), rec.UID)
	r.report(ctx, rec, writable)
	return errors.Join(err, RemoveJournals(r.Store.Spent), r.removeSubordinate(ctx, rec))
}

// removeSubordinate removes the subordinate ids of the chat. Where chatd may not write to /etc,
// whoever put them there removes them: reap says so and goes on.
func (r Reaping) removeSubordinate(ctx context.Context, rec state.Record) error {
	err := RemoveSubordinate(rec.ID.User(), rec.UID)
	if !errors.Is(err, unix.EROFS) {
		return err
	}
	r.Log.Warn("subordinate ids of a reaped chat are left: remove its lines by hand",
		"chat", rec.ID, "error", err)
	return r.Trail.Write(ctx, rec, "reap", "left", map[string]string{"error": err.Error()})
}

// foreignNamed is how many of them one reap names.
const foreignNamed = 10

// report writes the files that outlive the chat into chatd's log and the audit log. It
// searches the writable paths, and the top of the host's /tmp and /var/tmp.
func (r Reaping) report(ctx context.Context, rec state.Record, writable []string) {
	var first []string
	left := 0
	all := Search(rec.UID, writable, func(path string) {
		if left++; left <= foreignNamed {
			first = append(first, chat.Quote(path))
		}
	})
	if left == 0 && all {
		return
	}
	detail := map[string]string{"uid": fmt.Sprint(rec.UID), "files": fmt.Sprint(left), "first": strings.Join(first, " ")}
	if !all {
		detail["looked"] = fmt.Sprintf("at %d files at most, and at none below a mount", MaxLooks)
	}
	r.Log.Warn("files of a reaped chat are left where they do not belong to it", "chat", rec.ID, "uid", rec.UID, "files", left, "first", detail["first"])
	if err := r.Trail.Write(ctx, rec, "reap", "left", detail); err != nil {
		r.Log.Error("cannot audit what a reap left", "chat", rec.ID, "error", err)
	}
}
