package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
)

// insideEnv marks the second run of doctor, in a network namespace of its own.
const insideEnv = "CHATD_DOCTOR_INSIDE"

// doctorHost is doctor where no daemon answers: it runs this program again where
// packet rules can be raised and tried without touching the host's.
func doctorHost(ctx context.Context, cfg Config) (host chat.Host, err error) {
	if err := needRoot("probe the layers"); err != nil {
		return host, err
	}
	if os.Getenv(insideEnv) != "" {
		return doctorInside(ctx, cfg)
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", append([]string{"--json"}, os.Args[1:]...)...)
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	var said strings.Builder
	cmd.Stderr = &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	out, runErr := cmd.Output()
	if err := json.Unmarshal(out, &host); err != nil {
		return host, fmt.Errorf("cannot probe the layers: %w: %s", errors.Join(runErr, err), said.String())
	}
	return host, nil
}

func doctorInside(ctx context.Context, cfg Config) (chat.Host, error) {
	if err := bringUp("lo"); err != nil {
		return chat.Host{}, err
	}
	opt, err := provisionOptions(cfg)
	if err != nil {
		return chat.Host{}, err
	}
	return provision.Doctor(ctx, opt)
}

// bringUp is "ip link set NAME up" (netdevice(7)).
func bringUp(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot bring %s up: %w", name, err)
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq(name)
	if err == nil {
		req.SetUint16(unix.IFF_UP)
		err = unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
	}
	if err != nil {
		return fmt.Errorf("cannot bring %s up: %w", name, err)
	}
	return nil
}
