package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
)

// countHomes is what the home of each chat takes up.
func countHomes(c *cli.Context, chats []chat.Chat) (map[chat.ID]uint64, error) {
	if err := needRoot("count homes"); err != nil {
		return nil, err
	}
	defer progress(c, "counting")()
	disk := map[chat.ID]uint64{}
	for _, ch := range chats {
		n, err := homeSize(ch.Home)
		if err != nil {
			return nil, err
		}
		disk[ch.ID] = n
	}
	return disk, nil
}

// homeSize counts the blocks of a home, each file once for each of its names. The chat may
// change the tree meanwhile: nothing is followed out of it, and what goes away is not counted.
func homeSize(home string) (sum uint64, err error) {
	root, err := os.OpenRoot(home)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // reaped meanwhile, or not made yet
	}
	if err != nil {
		return 0, fmt.Errorf("cannot count %s: %w", home, err)
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), ".", func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // it went away, or leads out of the home
		}
		if info, err := d.Info(); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				sum += uint64(st.Blocks) * 512
			}
		}
		return nil
	})
	return sum, err
}
