package provision

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
)

// Files of the chat's uid may lie outside the chat's own trees: in a directory that an operator
// exposed for writing, or where a user of the host ran a command as the chat. They may be wanted
// work, so reap leaves them, and reports their paths. The uid is never assigned again.

const (
	// foreignLooks bounds the files that one reap examines for this; foreignNamed those it names.
	foreignLooks = 20000
	foreignNamed = 10
)

// reportForeign writes the files that outlive the chat into chatd's log and the audit log. It
// searches paths exposed for writing, and the top of the host's /tmp and /var/tmp.
func (m *Manager) reportForeign(ctx context.Context, rec state.Record) {
	var found []string
	left, looks := 0, foreignLooks
	seen := map[string]bool{} // directories may be exposed more than once
	note := func(path string, d fs.DirEntry) {
		fi, err := d.Info()
		if err != nil {
			return // removed meanwhile
		}
		if uid, _ := ownerOf(fi); uid == rec.UID && !seen[path] {
			seen[path] = true
			if left++; len(found) < foreignNamed {
				found = append(found, chat.Quote(path))
			}
		}
	}
	for _, dir := range []string{"/tmp", "/var/tmp"} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // a directory that does not exist holds no file
		}
		for _, e := range entries {
			note(filepath.Join(dir, e.Name()), e)
		}
	}
	for _, e := range m.profile(rec).ExposePaths {
		if e.Mode != chat.ReadWrite {
			continue
		}
		_ = filepath.WalkDir(e.Source, func(path string, d fs.DirEntry, err error) error { // what cannot be read is not named
			if looks--; looks < 0 {
				return fs.SkipAll
			}
			if err == nil {
				note(path, d)
			}
			return nil
		})
	}
	if left == 0 && looks >= 0 {
		return
	}
	detail := map[string]string{"uid": fmt.Sprint(rec.UID), "files": fmt.Sprint(left), "first": strings.Join(found, " ")}
	if looks < 0 {
		detail["looked"] = fmt.Sprintf("at %d files and no more", foreignLooks)
	}
	m.log.Warn("files of a reaped chat are left where they do not belong to it", "chat", rec.ID, "uid", rec.UID, "files", left, "first", detail["first"])
	if err := m.audit(ctx, rec, "reap", "left", detail); err != nil {
		m.log.Error("cannot audit what a reap left", "chat", rec.ID, "error", err)
	}
}
