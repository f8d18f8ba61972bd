package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

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
