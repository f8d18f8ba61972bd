package netpolicy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// nfnlgrpNftables is NFNLGRP_NFTABLES of <linux/netfilter/nfnetlink.h>: every
// change of a rule set that goes through nf_tables, as that of iptables-nft does.
const nfnlgrpNftables = 7

// quiet is how long changes must have stopped before they are looked at, for a
// restore is many messages, and hurry how long that may take in all. pause is the least time
// between two looks, so that a host whose rules change all day does not keep chatd at it.
const (
	quiet = 5 * time.Millisecond
	hurry = 50 * time.Millisecond
	pause = 200 * time.Millisecond
)

// Watch calls changed immediately, and after the packet rules of this network namespace were
// changed, by any process, until ctx ends; and touched as soon as it hears of a change, before it
// waits for more. It does not see iptables-legacy, whose tables send no notifications.
func Watch(ctx context.Context, touched func(), changed func(context.Context)) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		unix.NETLINK_NETFILTER)
	if err != nil {
		return fmt.Errorf("cannot watch the packet rules: %w", err)
	}
	if err := unix.Bind(fd,
		&unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (nfnlgrpNftables - 1)}); err != nil {
		return errors.Join(fmt.Errorf("cannot watch the packet rules: %w", err), unix.Close(fd))
	}
	events := os.NewFile(uintptr(fd), "netlink")
	stop := context.AfterFunc(ctx, func() { events.Close() })
	defer stop()
	defer events.Close()
	heard, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() { ended <- hear(events, touched, heard) }()
	for wait := time.Duration(0); ; wait = pause { // changes since the caller's last look were not observed
		if chat.Sleep(ctx, wait) != nil {
			return watchEnd(ctx, <-ended)
		}
		changed(ctx)
		select {
		case <-heard:
			calmDown(heard)
		case err := <-ended:
			return watchEnd(ctx, err)
		}
	}
}

// hear tells of each message as soon as it comes, also while the last change is looked at.
// That some were lost (ENOBUFS) is a change, too.
func hear(events *os.File, touched func(), heard chan<- struct{}) error {
	for b := make([]byte, 64<<10); ; {
		if _, err := events.Read(b); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return err
		}
		touched()
		select {
		case heard <- struct{}{}:
		default:
		}
	}
}

// calmDown returns when nothing was heard for a moment, or when that takes too long.
func calmDown(heard <-chan struct{}) {
	for latest := time.After(hurry); ; {
		select {
		case <-heard:
		case <-time.After(quiet):
			return
		case <-latest:
			return
		}
	}
}

func watchEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("cannot watch the packet rules: %w", err)
}
