package provision

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/chatd/chatd/shims"
)

// commandDirs are where allowed commands are looked for, as the session sees them.
var commandDirs = []string{"/usr/local/bin", "/usr/bin"}

func (m *Manager) binDir(profile string) string {
	return filepath.Join(m.paths.profiles, profile, "bin")
}

func (m *Manager) shimDir(profile string) string {
	return filepath.Join(m.paths.profiles, profile, "shims")
}

// installPrograms puts chatd-shim and the two directories of the PATH where
// sessions get them from: root's own directories, which no chat can write to,
// whatever the directory that chatd itself was started from.
func (m *Manager) installPrograms() error {
	if err := installFile(m.opt.Shim, m.paths.shim); err != nil {
		return err
	}
	for name, p := range m.opt.Profiles {
		if err := makeRootDir(filepath.Dir(m.binDir(name)), 0o755); err != nil {
			return err
		}
		missing, err := shims.WriteBin(m.binDir(name), p.Commands, commandDirs)
		if err != nil {
			return err
		}
		if err := shims.WriteShims(m.shimDir(name), shims.InsideShim, m.binDir(name)); err != nil {
			return err
		}
		if len(missing) > 0 {
			m.log.Info("commands of the profile are not on this host", "profile", name, "missing", missing)
		}
	}
	return nil
}

// installFile puts a copy in place in one step. Sessions that live keep the file
// they were started with.
func installFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("cannot install %s: %w", from, err)
	}
	if have, err := os.ReadFile(to); err == nil && bytes.Equal(have, content) {
		return nil
	}
	if err := replaceFile(to, content, 0o755); err != nil {
		return fmt.Errorf("cannot install %s: %w", to, err)
	}
	return nil
}
