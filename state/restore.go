package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/chatd/chatd/chat"
)

// Names of a restore inside the state directory. What is restored is unpacked and verified in the
// draft. Its rename decides: from then on the restore is completed, by the next Open if need be.
// First the former files are moved out, and then the new ones in; each step can be repeated.
const (
	draftName     = "restore.draft"
	movingOutName = "restore.out"
	movingInName  = "restore.in"
	asideForm     = "replaced-20060102T150405Z"

	newFiles, oldFiles = "new", "old" // folders in each of them
)

// Restore is a restore under way. It holds the lock of the state directory.
type Restore struct {
	dir  string
	lock *os.File
}

// BeginRestore locks a state directory and makes a draft in it. [chat.ErrBusy] means that a chatd
// runs, and [chat.ErrExists] that dir has a state: with replace, [Restore.Put] moves that aside. No
// other file of dir is touched: chats keep their directories there.
func BeginRestore(dir string, replace bool) (*Restore, error) {
	if err := prepareDir(dir); err != nil {
		return nil, err
	}
	lock, err := lockFile(filepath.Join(dir, lockName))
	if err != nil {
		return nil, err
	}
	r := &Restore{dir, lock}
	if err := r.begin(replace); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot restore into %s: %w", dir, err), lock.Close())
	}
	return r, nil
}

func (r *Restore) begin(replace bool) error {
	if _, err := finishRestore(r.dir); err != nil {
		return err
	}
	if db, err := openReadOnly(filepath.Join(r.dir, dbName), time.Second); err == nil {
		err = db.Close()
		if err != nil {
			return err
		}
	} else if errors.Is(err, chat.ErrBusy) { // the lock file may have been removed
		return err
	}
	names, err := stateFiles(r.dir)
	if err != nil {
		return err
	}
	if len(names) > 0 && !replace {
		return fmt.Errorf("it has a state: %v: want a directory without one, or --replace, which moves it aside: %w",
			names, chat.ErrExists)
	}
	err = os.RemoveAll(filepath.Join(r.dir, draftName))
	for _, sub := range []string{newFiles, oldFiles} {
		if err == nil {
			err = os.MkdirAll(filepath.Join(r.dir, draftName, sub), 0o700)
		}
	}
	return err
}

// Draft is the directory to unpack into.
func (r *Restore) Draft() string { return filepath.Join(r.dir, draftName, newFiles) }

// Room returns an error if the file system has no room for so many bytes more.
func (r *Restore) Room(bytes uint64) error {
	if free, ok := freeBytes(r.dir); ok && free < bytes+leastFree {
		return fmt.Errorf("cannot restore into %s: the backup has %d bytes, and %d are free: %w",
			r.dir, bytes, free, chat.ErrBusy)
	}
	return nil
}

// Close releases the lock, and removes the draft of a restore that was not put in place.
func (r *Restore) Close() error {
	return errors.Join(os.RemoveAll(filepath.Join(r.dir, draftName)), r.lock.Close())
}

// Verify checks the draft as a whole: every page and record of the database, the key, and the chain
// of the audit log to its end. It changes nothing.
func (r *Restore) Verify(ctx context.Context) (Snapshot, error) {
	s, err := TakeSnapshot(ctx, r.Draft())
	if err != nil {
		return Snapshot{}, err
	}
	if err := s.Close(); err != nil {
		return Snapshot{}, err
	}
	_, _, err = CheckAudit(r.Draft())
	return *s, err
}

// Adopt makes the draft the state of this host: its outbox is written to the log, and no uid below floor will be given.
func (r *Restore) Adopt(o Options, floor uint32, by Event) error {
	o.Dir = r.Draft()
	s, err := Open(o)
	if err != nil {
		return err
	}
	err = s.SkipUIDs(floor, by)
	if err == nil {
		err = s.Flush()
	}
	if err == nil {
		_, err = s.VerifyAudit()
	}
	return errors.Join(err, s.Close(), os.Remove(filepath.Join(o.Dir, lockName)),
		os.Remove(filepath.Join(o.Dir, holdName)))
}

// Put puts the draft in place, durable on return. aside is the directory of what was there before;
// empty if there was nothing.
func (r *Restore) Put() (aside string, err error) {
	draft := filepath.Join(r.dir, draftName)
	err = syncFiles(r.Draft())
	if err == nil {
		err = errors.Join(syncDir(draft), os.Rename(draft, filepath.Join(r.dir, movingOutName)),
			syncDir(r.dir))
	}
	if err == nil {
		aside, err = finishRestore(r.dir)
	}
	if err != nil {
		return "", fmt.Errorf("cannot put the restored state in place in %s: %w", r.dir, err)
	}
	return aside, nil
}

func syncFiles(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		f, err := os.Open(filepath.Join(dir, e.Name()))
		if err == nil {
			err = errors.Join(f.Sync(), f.Close())
		}
		if err != nil {
			return err
		}
	}
	return syncDir(dir)
}

// restoreStep is called between the steps of a restore that was decided; tests end it there.
var restoreStep = func(string) error { return nil }

// finishRestore completes a restore that was decided; without one it does nothing. The caller holds
// the lock.
func finishRestore(dir string) (aside string, err error) {
	out, in := filepath.Join(dir, movingOutName), filepath.Join(dir, movingInName)
	if _, err := os.Lstat(out); err == nil {
		names, err := stateFiles(dir)
		if err == nil {
			err = moveFiles(dir, filepath.Join(out, oldFiles), names)
		}
		if err := errors.Join(err, restoreStep("moved out")); err != nil {
			return "", err
		}
		if err := errors.Join(os.Rename(out, in), syncDir(dir)); err != nil {
			return "", err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if _, err := os.Lstat(in); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return "", err
	}
	return moveIn(dir, in)
}

// moveIn puts the new files in place, and gives the directory of the former ones a name by the time.
func moveIn(dir, in string) (aside string, err error) {
	names, err := namesIn(filepath.Join(in, newFiles))
	if err == nil {
		err = moveFiles(filepath.Join(in, newFiles), dir, names)
	}
	if err := errors.Join(err, restoreStep("moved in")); err != nil {
		return "", err
	}
	old := filepath.Join(in, oldFiles)
	if names, err = namesIn(old); err == nil && len(names) > 0 {
		aside = asideName(dir)
		err = os.Rename(old, aside)
	}
	if err := errors.Join(err, restoreStep("kept aside")); err != nil {
		return "", err
	}
	return aside, errors.Join(os.RemoveAll(in), syncDir(dir))
}

// namesIn are the names in a directory, or none where that is gone.
func namesIn(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// asideName is a name of this second that is free.
func asideName(dir string) string {
	for at := time.Now().UTC(); ; at = at.Add(time.Second) {
		aside := filepath.Join(dir, at.Format(asideForm))
		if _, err := os.Lstat(aside); errors.Is(err, fs.ErrNotExist) {
			return aside
		}
	}
}

// moveFiles renames files that are there from one directory to another, durably.
func moveFiles(from, to string, names []string) error {
	for _, name := range names {
		if err := os.Rename(filepath.Join(from, name), filepath.Join(to, name)); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := restoreStep(name); err != nil {
			return err
		}
	}
	return errors.Join(syncDir(to), syncDir(from))
}

// stateFiles are the names of the files in dir that are part of a state, but for the lock.
func stateFiles(dir string) ([]string, error) {
	names, err := archives(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{dbName, keyName, keyName + ".new", auditName, newName} {
		switch _, err := os.Lstat(filepath.Join(dir, name)); {
		case err == nil:
			names = append(names, name)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	slices.Sort(names)
	return names, nil
}
