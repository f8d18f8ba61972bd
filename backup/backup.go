package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
)

// Options say what is backed up.
type Options struct {
	// State is the state directory.
	State string
	// Config are the files of the config, the main file first. They are read as they are.
	Config []string
	// Chatd is the version of the program.
	Chatd string
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Make writes a backup of the state in a directory, as it is at one commit, and of the config. A
// daemon may run; its commits wait while the database is copied. Before the first byte is written,
// all of it was verified.
func Make(ctx context.Context, out io.Writer, o Options) (m Manifest, err error) {
	snap, err := state.TakeSnapshot(ctx, o.State)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, snap.Close()) }()
	if o.Now == nil {
		o.Now = time.Now
	}
	m = Manifest{
		Form:      Form,
		Chatd:     o.Chatd,
		At:        o.Now().UTC().Truncate(time.Second),
		State:     snap.Version,
		Chats:     snap.Chats,
		Given:     snap.Given,
		AuditSeq:  snap.Seq,
		AuditHash: snap.Hash,
		Config:    map[string]string{},
	}
	var files []source
	for _, f := range snap.Files {
		files = append(files, source{Entry{Name: f.Name, Size: f.Size}, f.From})
	}
	for i, path := range o.Config {
		f, err := configFile(path, i)
		if err != nil {
			return m, err
		}
		files = append(files, f)
		m.Config[f.Name] = path
	}
	if err := write(interrupted{ctx, out}, m, files); err != nil {
		return m, err
	}
	for _, f := range files {
		m.Files = append(m.Files, f.Entry)
	}
	return m, nil
}

// configFile reads one file of the config. The main file is chatd.yaml in a backup; the others have
// a number, because two may have one name.
func configFile(path string, i int) (source, error) {
	f, err := os.Open(path)
	if err != nil {
		return source{}, fmt.Errorf("cannot back up the config: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return source{}, fmt.Errorf("cannot back up the config: %w", err)
	}
	if len(text) > maxConfig {
		return source{}, fmt.Errorf("cannot back up the config: %s has more than %d bytes: %w",
			path, maxConfig, chat.ErrInvalid)
	}
	name := configDir + "chatd.yaml"
	if i > 0 {
		name = fmt.Sprintf("%srules-%d%s", configDir, i, plainExt(path))
	}
	return source{Entry{Name: name, Size: int64(len(text))}, bytes.NewReader(text)}, nil
}

// plainExt is a file's extension, if it is one of a file of rules.
func plainExt(path string) string {
	switch ext := filepath.Ext(path); ext {
	case ".json", ".json5", ".yaml", ".yml":
		return ext
	}
	return ""
}
