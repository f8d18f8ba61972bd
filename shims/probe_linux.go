package shims

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
)

// finding collects the attempts at one wall.
type finding struct {
	by           string
	held, broken []string
	weaker       bool
}

// expect adds an attempt: its text names the act and the outcome.
func (f *finding) expect(ok bool, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	if ok {
		f.held = append(f.held, what)
		return
	}
	f.broken = append(f.broken, what)
}

func (f *finding) layer(name chat.LayerName, fix string) chat.Layer {
	held, broken := strings.Join(f.held, "; "), "NOT HELD: "+strings.Join(f.broken, "; ")
	l := chat.Layer{Name: name, By: f.by, Probe: held, Fix: fix, At: time.Now().UTC()}
	switch {
	case len(f.broken) == 0 && f.weaker:
		l.State = chat.LayerWeaker
	case len(f.broken) == 0:
		l.State, l.Fix = chat.LayerOn, ""
	case len(f.held) > 0:
		l.State, l.Probe = chat.LayerWeaker, broken+"; held: "+held
	default:
		l.State, l.By, l.Probe = chat.LayerOff, "", broken
	}
	return l
}

// Probe tries from inside the walls that a session itself can test: home, tmp, network, proc,
// view, landlock, seccomp, privileges and path. It leaves nothing behind.
func Probe(s plan.ProbeSpec) []chat.Layer {
	status, err := ownStatus()
	if err != nil {
		status = plan.Status{}
	}
	return []chat.Layer{
		probeHome(s.Home).layer(chat.LayerHome, homeFix(s.Home)),
		probeTmp().layer(chat.LayerTmp, "start the session with /tmp, /var/tmp and /dev/shm of its own"),
		probeNetwork(s).layer(chat.LayerNetwork,
			"use a kernel with Landlock ABI 6 (Linux 6.12), or network: none"),
		probeProc(s.PID, len(s.Locked) > 0).layer(chat.LayerProc, "let bwrap make a pid namespace"),
		probeMounts(s).layer(chat.LayerView,
			"start the session through bwrap, on a kernel with overlay whose root is on less than two overlays"),
		probeLandlock().layer(chat.LayerLandlock, "boot with landlock in lsm="),
		probeSeccomp(status).layer(chat.LayerSeccomp, "use a kernel with CONFIG_SECCOMP_FILTER"),
		probePrivileges(status).layer(chat.LayerPrivileges, "start commands through chatd-shim confine"),
		probePath().layer(chat.LayerPath, "set PATH to "+plan.InsideShims+":"+plan.InsideBin),
	}
}

func ownStatus() (plan.Status, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return plan.Status{}, fmt.Errorf("cannot read process status: %w", err)
	}
	return plan.ParseStatus(string(text))
}

// outcome words an error of the kernel for a probe's sentence.
func outcome(err error) string {
	if err == nil {
		return "done"
	}
	return err.Error()
}
