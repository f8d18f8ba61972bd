package roottest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/config/configfile"
	"github.com/chatd/chatd/test/must"
)

// insideEnv marks the second run of the test binary, inside its namespaces.
const insideEnv = "CHATD_ROOTTEST_INSIDE"

// worldsPrefix begins the name of the directory, below /tmp, in which each process of a run has
// its /srv. Only root enters it.
const worldsPrefix = "chatd-roottest-"

// programs are the built binaries: chatd, beside it chatd-root and chatd-enforce with failpoints,
// chatd-shim, and the demonstration.
var programs struct{ chatd, root, shim, enforce, egress, archive, demo string }

func TestMain(m *testing.M) {
	become := map[string]func() int{
		watchedName: becomeWatched, takenOverName: takenOverEgress, "chatd-config": configStep, hostileName: hostileFront,
	}
	if do := become[os.Args[0]]; do != nil {
		os.Exit(do())
	}
	flag.Parse()
	if flagSet("test.list") && (os.Geteuid() != 0 || os.Getenv(insideEnv) != "") {
		os.Exit(m.Run()) // needs nothing
	}
	if os.Geteuid() != 0 {
		fmt.Println("--- SKIP: all tests\n    SKIPPED: needs root")
		os.Exit(map[bool]int{true: 1}[requireAll()])
	}
	if os.Getenv(insideEnv) != "" {
		if err := errors.Join(enterWorld(), leaveOut()); err != nil {
			fmt.Fprintln(os.Stderr, "cannot set up what the tests act in:", err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	code, err := runInside()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cannot run the tests:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

// configStep is an honest config step: a chatd-root that has this program as its front starts it so.
func configStep() int {
	if err := configfile.Step(os.Args[2:], os.Stdin, os.Stdout); err != nil {
		fmt.Print(err)
		return chat.ExitCode(err)
	}
	return 0
}

// runInside builds the programs and runs this binary again, in new namespaces or
// on a machine that is for it alone.
func runInside() (code int, err error) {
	dir, err := os.MkdirTemp("", worldsPrefix)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := errors.Join(build(dir), copyAttacker(filepath.Join(dir, attackName))); err != nil {
		return 1, err
	}
	var m machine
	if onHost() {
		if m, err = takeMachine(); err != nil {
			return 1, err
		}
		defer func() { err = errors.Join(err, m.giveBack(dir)) }()
	}
	// Clean up even if the tests are ended by a signal.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	if n := workers(); n > 1 {
		return runBeside(ctx, dir, n)
	}
	cmd := inside(ctx, dir, os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(1, exit.ExitCode()), nil
	}
	return 0, err
}

func build(dir string) error {
	for _, p := range []struct{ out, pkg, tags string }{
		{"chatd-shim", "../../cmd/chatd-shim", ""}, {"chatd-enforce", "../../cmd/chatd-enforce", "failpoints"}, {"chatd-egress", "../../cmd/chatd-egress", ""}, {"chatd-root", "../../cmd/chatd-root", "failpoints"}, {"chatd", "../../cmd/chatd", ""},
		{"chatd-archive", "../../cmd/chatd-archive", ""}, {"demo", "../../examples/bridge", ""},
	} {
		cmd := exec.Command("go", "build", "-tags", p.tags, "-ldflags", "-s -w", "-o", filepath.Join(dir, p.out), p.pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("cannot build %s: %w: %s", p.out, err, out)
		}
	}
	return nil
}

// enterWorld makes the namespaces usable: loopback up, mounts private, and mounts over the two host
// directories that chatd writes to.
func enterWorld() error {
	dir := os.Getenv(insideEnv)
	programs.chatd, programs.shim = filepath.Join(dir, "chatd"), filepath.Join(dir, "chatd-shim")
	programs.root = filepath.Join(dir, "chatd-root")
	programs.egress = filepath.Join(dir, "chatd-egress")
	programs.archive = filepath.Join(dir, "chatd-archive")
	programs.enforce, programs.demo = filepath.Join(dir, "chatd-enforce"), filepath.Join(dir, "demo")
	if onHost() {
		return nil
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("cannot make mounts private: %w", err)
	}
	// A directory of a disk, not a tmpfs: what is synced shall cost what it costs.
	srv := srvOf(dir, os.Getpid())
	err := errors.Join(os.Mkdir(srv, 0o755), os.Chmod(srv, 0o755),
		os.Link(filepath.Join(dir, attackName), filepath.Join(srv, attackName)))
	if err != nil {
		return err
	}
	if err := unix.Mount(srv, "/srv", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("cannot mount on /srv: %w", err)
	}
	if err := overlayEtc(); err != nil {
		return err
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("cannot bring loopback up: %w: %s", err, out)
	}
	return nil
}

// srvOf is what the test process of that pid has as its /srv.
func srvOf(dir string, pid int) string { return filepath.Join(dir, "srv"+strconv.Itoa(pid)) }

// overlayEtc mounts an overlay over /etc, so that accounts written there end with this namespace.
func overlayEtc() error {
	for _, d := range []string{"/srv/.etc/upper", "/srv/.etc/work"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("overlay", "/etc", "overlay", 0, "lowerdir=/etc,upperdir=/srv/.etc/upper,workdir=/srv/.etc/work"); err != nil {
		return fmt.Errorf("cannot mount over /etc: %w", err)
	}
	// The records themselves are on the disk below, as on a host.
	userdb := "/srv/.etc/userdb"
	for _, d := range []string{"/etc/userdb", userdb} {
		if err := os.MkdirAll(d, 0o711); err != nil {
			return err
		}
	}
	if err := unix.Mount(userdb, "/etc/userdb", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("cannot mount on /etc/userdb: %w", err)
	}
	return nil
}

// requireAll reports that nothing may be skipped.
func requireAll() bool { return strings.TrimSpace(os.Getenv("CHATD_TEST_REQUIRE")) == "all" }

// missing skips, or fails under CHATD_TEST_REQUIRE=all.
func missing(t testing.TB, what string) {
	t.Helper()
	must.True(t, !requireAll(), "needs %s, and CHATD_TEST_REQUIRE=all", what)
	t.Skipf("SKIPPED: needs %s", what)
}
