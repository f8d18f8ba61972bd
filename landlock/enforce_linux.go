package landlock

import (
	"errors"
	"fmt"
	"strings"

	"github.com/chatd/chatd/chat"
	ll "github.com/landlock-lsm/go-landlock/landlock"
	llsys "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

const (
	readFile  = llsys.AccessFSReadFile
	listDir   = llsys.AccessFSReadDir
	readDir   = readFile | llsys.AccessFSReadDir
	execFile  = readFile | llsys.AccessFSExecute
	execDir   = readDir | llsys.AccessFSExecute
	writeFile = readFile | llsys.AccessFSWriteFile | llsys.AccessFSTruncate
	device    = writeFile | llsys.AccessFSIoctlDev
	deviceDir = device | llsys.AccessFSReadDir

	// writeDir lacks make_char and make_block: a plain user has no use for device
	// nodes, and the whiteouts it could make confuse programs that meet them.
	writeDir = execDir | writeFile | llsys.AccessFSRefer | llsys.AccessFSResolveUnix |
		llsys.AccessFSRemoveDir | llsys.AccessFSRemoveFile | llsys.AccessFSMakeDir | llsys.AccessFSMakeReg |
		llsys.AccessFSMakeSock | llsys.AccessFSMakeFifo | llsys.AccessFSMakeSym
)

// handled returns the operations that a kernel of that ABI can refuse.
func handled(abi int) ll.AccessFSSet {
	known := []ll.Config{{}, ll.V1, ll.V2, ll.V3, ll.V4, ll.V5, ll.V6, ll.V7, ll.V8, ll.V9, ll.V10, ll.V11}
	return known[min(max(abi, 0), len(known)-1)].HandledAccessFS
}

// maxABI is the newest ABI whose rights this package knows; a newer kernel is
// asked for no more than these.
const maxABI = 11

// ScopeABI is the first ABI that can scope abstract unix sockets.
const ScopeABI = 6

// ABI is the kernel's Landlock ABI version, 0 where there is none: see
// LANDLOCK_CREATE_RULESET_VERSION in landlock_create_ruleset(2).
func ABI() int {
	v, err := llsys.LandlockGetABIVersion()
	if err != nil {
		return 0
	}
	return v
}

// Enforce irrevocably confines every thread of this process and all its later
// children to r. With scope it also denies connections to abstract unix sockets of
// outside processes, if the ABI is 6 or more. It sets no_new_privs.
//
// A kernel below minABI is [chat.ErrUnsupported]; a minABI below 1 counts as 1,
// so that a nil error always means that something is enforced. After an error
// the process is as it was, or confined more: it must not go on.
func Enforce(r Rules, minABI int, scope bool) (Result, error) {
	abi := min(ABI(), maxABI)
	if minABI = max(minABI, 1); abi < minABI {
		return Result{}, fmt.Errorf("cannot enforce Landlock: the kernel has ABI %d, want at least %d: %w",
			abi, minABI, chat.ErrUnsupported)
	}
	config := ll.Config{HandledAccessFS: handled(abi)}
	if scope && abi >= ScopeABI {
		config.Scoped = llsys.ScopeAbstractUnixSocket
	}
	rules, missing, err := compile(r, config.HandledAccessFS)
	if err != nil {
		return Result{}, err
	}
	if err := config.Restrict(rules...); err != nil {
		return Result{}, fmt.Errorf("cannot enforce Landlock ABI %d: %w", abi, err)
	}
	return Result{
		ABI: abi, Rights: rightNames(config.HandledAccessFS), Missing: missing,
		Refer: abi >= 2, Scoped: config.Scoped != 0,
	}, nil
}

// compile turns r into rules of the library with no right the kernel does not
// handle, and without the paths that do not exist.
func compile(r Rules, handled ll.AccessFSSet) (rules []ll.Rule, missing []string, err error) {
	for _, g := range []struct {
		paths  []string
		access ll.AccessFSSet
	}{
		{r.List, listDir}, {r.Read, readDir}, {r.Exec, execDir}, {r.Write, writeDir},
		{r.ReadFiles, readFile}, {r.ExecFiles, execFile}, {r.WriteFiles, writeFile},
		{r.Devices, device}, {r.DeviceDirs, deviceDir},
	} {
		there, gone, err := present(g.paths)
		if err != nil {
			return nil, nil, err
		}
		missing = append(missing, gone...)
		if len(there) > 0 {
			rules = append(rules, ll.PathAccess(g.access&handled, there...))
		}
	}
	return rules, missing, nil
}

// present separates the paths that exist from those that do not. A path that cannot be looked up
// for another reason is an error: the caller would rely on a rule that is left out.
func present(paths []string) (there, missing []string, err error) {
	for _, p := range paths {
		var st unix.Stat_t
		switch err := unix.Stat(p, &st); {
		case err == nil:
			there = append(there, p)
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
			missing = append(missing, p)
		default:
			return nil, nil, fmt.Errorf("cannot use %s in a Landlock rule: %w", chat.Quote(p), err)
		}
	}
	return there, missing, nil
}

// rightNames are the names of a set as the library prints them: "{a,b}".
func rightNames(set ll.AccessFSSet) []string {
	return strings.Split(strings.Trim(set.String(), "{}"), ",")
}
