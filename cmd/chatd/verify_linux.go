package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"syscall"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/config"
)

// scanStrays walks the local file systems: it runs the mode scan of chatd-shim, as the uid of probes, which owns nothing, with
// CAP_DAC_READ_SEARCH alone. The end of ctx ends it.
func scanStrays(
	ctx context.Context, cfg config.Config, req chat.StrayRequest, each func(chat.StrayLine),
) (end chat.StrayEnd, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	program := cmp.Or(cfg.Shim, config.FindProgram("chatd-shim"))
	file, err := os.Open(program)
	if err != nil {
		return end, fmt.Errorf("cannot verify: %w", err)
	}
	defer file.Close()
	// By its descriptor: the uid may not be able to reach the program by its name.
	cmd := exec.CommandContext(ctx, "/proc/self/fd/3", "scan")
	cmd.Args[0], cmd.ExtraFiles = "chatd-shim", []*os.File{file}
	cmd.Dir, cmd.Env = "/", []string{"GOMAXPROCS=1", "GOMEMLIMIT=64MiB"}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential:  &syscall.Credential{Uid: cfg.UIDs.High, Gid: cfg.UIDs.High},
		AmbientCaps: []uintptr{unix.CAP_DAC_READ_SEARCH},
		Pdeathsig:   syscall.SIGKILL,
	}
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		return end, fmt.Errorf("cannot verify: cannot start %s: %w", chat.Quote(program), err)
	}
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }() // it has said its last
	if err := json.NewEncoder(stdin).Encode(req); err != nil {
		return end, fmt.Errorf("cannot verify: cannot tell %s what to do: %w", program, err)
	}
	end, err = readStrays(stdout, each)
	if err == nil && end.Error != "" {
		err = errors.New(end.Error)
	}
	if err != nil {
		return end, fmt.Errorf("cannot verify: %w", errors.Join(err, ctx.Err()))
	}
	return end, nil
}

// readStrays reads the lines of a walk, the last of which is its end.
func readStrays(r io.Reader, each func(chat.StrayLine)) (end chat.StrayEnd, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, chat.MaxStrayLine)
	for lines.Scan() {
		var l chat.StrayLine
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return end, fmt.Errorf("cannot read what the walk found: %w", err)
		}
		if l.End != nil {
			return *l.End, nil
		}
		each(l)
	}
	return end, errors.Join(lines.Err(), errors.New("the walk did not end by itself"))
}

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
