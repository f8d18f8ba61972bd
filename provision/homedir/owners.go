package homedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/chatd/chatd/internal/sys"
)

// Owners returns the owners of the entries of dirs, which need not exist, with one path of each.
// It leaves out the home of a [Try].
func Owners(dirs ...string) (map[uint32]string, error) {
	owners := map[uint32]string{}
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("cannot list %s: %w", dir, err)
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			fi, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) || e.Name() == triedName {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("cannot look at %s: %w", path, err)
			}
			uid, _ := sys.OwnerOf(fi)
			owners[uid] = path
		}
	}
	return owners, nil
}
