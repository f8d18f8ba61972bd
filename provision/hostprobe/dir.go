package hostprobe

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// MakeDir makes a directory on the file system where place is or would be. Programs run from one
// and not from another (/run is noexec on Debian). Its caller removes it.
func MakeDir(place string) (string, error) {
	parent := filepath.Dir(place)
	for ; parent != "/"; parent = filepath.Dir(parent) {
		if _, err := os.Stat(parent); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	dir, err := os.MkdirTemp(parent, "chatd-doctor-")
	if err != nil {
		return "", fmt.Errorf("cannot make a directory to probe in: %w", err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return "", errors.Join(fmt.Errorf("cannot open up %s: %w", dir, err), os.Remove(dir))
	}
	return dir, nil
}
