package cgroup

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/chatd/chatd/cgroup/cgroupfs"
	"github.com/chatd/chatd/chat"
	"golang.org/x/sys/unix"
)

// Limits of the probe: small, so that reaching them costs nothing.
const (
	probeMemory = 16 << 20
	probePids   = 16
	probeRun    = "probe"
	probePrefix = "probe-"
	probeTime   = 10 * time.Second
)

// Probe tries what the limits promise, in a tree of its own that it removes. A child asks for four
// times its memory and must be killed, forks past its tasks and must be refused, spins past its
// quota and must be throttled. Each child must have been born inside. Layers are memory, pids and
// cpu, in that order. failed returns a layer after a trial that ended with an error, and its fix:
// off, or unknown on a host without the time for a trial ([context.DeadlineExceeded]).
func (f *FS) Probe(ctx context.Context, failed FailedLayer) []chat.Layer {
	return probe{f: f, failed: failed, create: f.create, limitCPU: f.limitCPU,
		end: func(ctx context.Context, id chat.ID) error {
			return errors.Join(f.Kill(ctx, id), f.Remove(id))
		}}.layers(ctx)
}

// FailedLayer returns a layer after a failed trial, with what mends it.
type FailedLayer = func(l chat.Layer, err error, fix string) chat.Layer

// probe is the trials, and what differs between the backends.
type probe struct {
	f        *FS
	failed   FailedLayer
	create   func(chat.ID, chat.Limits) error
	limitCPU func(chat.ID, chat.Limits) error
	end      func(context.Context, chat.ID) error
}

func (p probe) layers(ctx context.Context) []chat.Layer {
	// First and alone: what is not born inside would fork and allocate without a bound.
	birth := p.in(ctx, p.birth)
	layers := make([]chat.Layer, 3)
	var all sync.WaitGroup
	all.Go(func() { layers[0] = p.layer(ctx, chat.LayerMemory, birth, p.memory) })
	all.Go(func() { layers[1] = p.layer(ctx, chat.LayerPids, birth, p.pids) })
	all.Go(func() { layers[2] = p.layer(ctx, chat.LayerCPU, birth, p.cpu) })
	all.Wait()
	if layers[0].State == chat.LayerOn && p.f.swapUnbounded() {
		layers[0].State = chat.LayerWeaker
		layers[0].Probe += "; but the host has swap and the kernel no limit for it"
		layers[0].Fix = "boot with swapaccount=1, or turn swap off"
	}
	return layers
}

// layer runs one trial. A trial returns what it saw; an error says the wall is
// not there.
func (p probe) layer(ctx context.Context, name chat.LayerName, birth error, try func(context.Context, chat.ID) (string, error)) chat.Layer {
	l := chat.Layer{Name: name, State: chat.LayerOn, By: p.f.mode, At: time.Now()}
	err := birth
	if err == nil {
		err = p.in(ctx, func(ctx context.Context, id chat.ID) (err error) {
			l.Probe, err = try(ctx, id)
			return err
		})
	}
	if err != nil {
		l.By = ""
		l = p.failed(l, err, "give chatd's cgroup the controllers memory, pids and cpu "+
			"(systemd: Delegate=yes), on Linux 5.14 or later")
	}
	return l
}

// in makes a tree for one trial and takes it away. Its name is not a chat id, so
// that no list of chats shows it.
func (p probe) in(ctx context.Context, try func(context.Context, chat.ID) error) (err error) {
	ctx, stop := context.WithTimeout(ctx, probeTime)
	defer stop()
	var name [8]byte
	if _, err := rand.Read(name[:]); err != nil {
		return fmt.Errorf("cannot name a probe: %w", err)
	}
	id := chat.ID(probePrefix + hex.EncodeToString(name[:]))
	defer func() {
		// Also when the caller gave up: nothing of a probe may stay.
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), probeTime)
		defer stop()
		err = errors.Join(err, p.end(ctx, id))
	}()
	limits := chat.DefaultLimits()
	limits.MemoryMax, limits.PidsMax = probeMemory, probePids
	limits.CPUQuota, limits.CPUPeriod = chat.Duration(time.Millisecond), chat.Duration(10*time.Millisecond)
	if err := p.create(id, limits); err != nil {
		return err
	}
	if err := p.f.CreateRun(id, probeRun); err != nil {
		return err
	}
	return errors.Join(try(ctx, id), ctx.Err())
}

// birth sees a child in its leaf, and in the v1 cgroups where there are any.
func (p probe) birth(_ context.Context, id chat.ID) (err error) {
	cmd := exec.Command("/bin/cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("cannot probe: %w", err)
	}
	if err := p.start(id, cmd); err != nil {
		return errors.Join(err, in.Close())
	}
	defer func() { err = errors.Join(err, in.Close(), waitAny(cmd)) }()
	own, err := cgroupsOf(strconv.Itoa(cmd.Process.Pid))
	if err != nil {
		return err
	}
	want := []string{""}
	if p.f.legacy != nil {
		want = append(want, controllers...)
	}
	for _, c := range want {
		if !strings.Contains(own[c], "/"+p.f.group(id)) {
			return fmt.Errorf("cannot bound a child: it was born in %q of %q: %w", own[c], c,
				chat.ErrUnsupported)
		}
	}
	return nil
}

// memory lets dd(1) fill one buffer of four times the limit.
func (p probe) memory(ctx context.Context, id chat.ID) (string, error) {
	cmd := exec.CommandContext(ctx, "/bin/dd", "if=/dev/zero", "of=/dev/null",
		fmt.Sprint("bs=", 4*probeMemory), "count=1")
	if err := p.start(id, cmd); err != nil {
		return "", err
	}
	err := cmd.Wait()
	u, uerr := p.f.RunUsage(id, probeRun)
	if uerr != nil {
		return "", uerr
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL ||
		u.OOMKills == 0 {
		return "", fmt.Errorf("cannot bound memory: a child took %d MiB with a limit of %d MiB (ended: %v, OOM kills: %d)",
			4*probeMemory>>20, probeMemory>>20, err, u.OOMKills)
	}
	return fmt.Sprintf("a child that asked for %d MiB with a limit of %d MiB was killed", 4*probeMemory>>20,
		probeMemory>>20), nil
}

// pids lets a shell fork more children than there may be tasks. They wait for a pipe that says
// nothing, which starts no program.
func (p probe) pids(ctx context.Context, id chat.ID) (string, error) {
	silent, hold, err := os.Pipe()
	if err != nil {
		return "", fmt.Errorf("cannot probe: %w", err)
	}
	defer hold.Close()
	defer silent.Close()
	script := fmt.Sprintf("exec 3<&0; i=0; while [ $i -lt %d ]; do read x <&3 & i=$((i+1)); done",
		2*probePids)
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", script)
	cmd.Stdin = silent
	if err := p.start(id, cmd); err != nil {
		return "", err
	}
	failed := cmd.Wait() != nil
	u, err := p.f.Usage(id)
	if err = errors.Join(err, p.endOrphans(id)); err != nil {
		return "", err
	}
	if !failed || u.PidsRefused == 0 || u.Pids > probePids {
		return "", fmt.Errorf("cannot bound tasks: %d are there with a limit of %d, %d forks refused", u.Pids,
			probePids, u.PidsRefused)
	}
	return fmt.Sprintf("a child that forked %d times with a limit of %d was refused", 2*probePids,
		probePids), nil
}

// endOrphans ends the shell's children, which it left when it was refused one more, and collects
// them where this process adopts orphans (PR_SET_CHILD_SUBREAPER). Otherwise every probe would
// leave zombies. The leaf is not killed as a whole, for the next probe starts in it.
func (p probe) endOrphans(id chat.ID) error {
	pids, err := cgroupfs.Processes(p.f.dir(id, runsDir, probeRun))
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("cannot end a child of the probe: %w", err)
		}
		_, err := unix.Wait4(pid, nil, 0, nil)
		for errors.Is(err, unix.EINTR) {
			_, err = unix.Wait4(pid, nil, 0, nil)
		}
		if err != nil && !errors.Is(err, unix.ECHILD) {
			return fmt.Errorf("cannot collect a child of the probe: %w", err)
		}
	}
	return nil
}

func (p probe) start(id chat.ID, cmd *exec.Cmd) error {
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LANG=C"}
	dir, err := p.f.openLeaf(id, probeRun)
	if err != nil {
		return err
	}
	defer dir.Close()
	return p.f.start(id, probeRun, dir, cmd, nil)
}

// waitAny waits for a child that may end in any way.
func waitAny(cmd *exec.Cmd) error {
	err := cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil
	}
	return err
}

// swapUnbounded: the host has swap, and a chat could go there past its memory.
func (f *FS) swapUnbounded() bool {
	b, err := os.ReadFile("/proc/swaps")
	if err != nil || strings.Count(string(b), "\n") < 2 {
		return false
	}
	if f.legacy != nil {
		return f.legacy.memorySwap(chat.Limits{}) == nil
	}
	_, err = os.Stat(f.bases.Unified + "/memory.swap.max")
	return err != nil
}
