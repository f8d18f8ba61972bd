package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/chatd/chatd/config"
)

// usedUIDs are the uids that something on this host has where chats have things: homes, temporary
// directories, userdb records and /etc/passwd.
func usedUIDs(cfg config.Config) (uids []uint32, err error) {
	for _, dir := range []string{cfg.Homes, filepath.Join(cfg.State, "tmp"), filepath.Join(cfg.State, "vartmp"), cfg.UserDB} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("cannot look for used uids: %w", err)
		}
		for _, e := range entries {
			fi, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("cannot look for used uids: %w", err)
			}
			if st, ok := fi.Sys().(*syscall.Stat_t); ok {
				uids = append(uids, st.Uid)
			}
			uids = append(uids, numbered(strings.TrimSuffix(e.Name(), ".user"))...)
		}
	}
	passwd, err := os.ReadFile("/etc/passwd")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot look for used uids: %w", err)
	}
	for line := range strings.Lines(string(passwd)) {
		if f := strings.Split(line, ":"); len(f) > 2 {
			uids = append(uids, numbered(f[2])...)
		}
	}
	return uids, nil
}

// numbered is the uid that s is, if it is one.
func numbered(s string) []uint32 {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return nil
	}
	return []uint32{uint32(n)}
}
