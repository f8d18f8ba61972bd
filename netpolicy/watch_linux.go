package netpolicy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// nfnlgrpNftables is NFNLGRP_NFTABLES of <linux/netfilter/nfnetlink.h>: every
// change of a rule set that goes through nf_tables, as that of iptables-nft does.
const nfnlgrpNftables = 7

// quiet is how long changes must have stopped before they are reported: a
// restore is many messages. pause is the least time between two reports, so that
// a host whose rules change all day does not keep chatd reading them.
const (
	quiet = 50 * time.Millisecond
	pause = time.Second
)

// Watch calls changed at once, and after the packet rules of this network namespace were
// changed, by whomever, until ctx ends. It sees nothing of iptables-legacy, whose
// tables tell nobody.
func Watch(ctx context.Context, changed func(context.Context)) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return fmt.Errorf("cannot watch the packet rules: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (nfnlgrpNftables - 1)}); err != nil {
		return errors.Join(fmt.Errorf("cannot watch the packet rules: %w", err), unix.Close(fd))
	}
	events := os.NewFile(uintptr(fd), "netlink")
	stop := context.AfterFunc(ctx, func() { events.Close() })
	defer stop()
	defer events.Close()
	changed(ctx) // between the caller's last look and now nobody listened
	for {
		err := awaitChange(events, time.Time{})
		for latest := time.Now().Add(pause); err == nil; {
			err = awaitChange(events, earlier(time.Now().Add(quiet), latest))
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return watchEnd(ctx, err)
		}
		changed(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// awaitChange reads one message. That some were lost (ENOBUFS) is a change, too.
func awaitChange(events *os.File, deadline time.Time) error {
	if err := events.SetReadDeadline(deadline); err != nil {
		return err
	}
	_, err := events.Read(make([]byte, 64<<10))
	if errors.Is(err, unix.ENOBUFS) {
		return nil
	}
	return err
}

func watchEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("cannot watch the packet rules: %w", err)
}
