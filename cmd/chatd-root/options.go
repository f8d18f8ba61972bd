package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/config"
	"github.com/chatd/chatd/internal/journal"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/provision/archives"
	"github.com/chatd/chatd/provision/listen"
	"github.com/chatd/chatd/state"
)

// provisionOptions is the config as package provision takes it.
func provisionOptions(ctx context.Context, cfg config.Config, c compiler) (provision.Options, error) {
	rules, err := c.allRules(ctx, cfg)
	servers, serr := dnsServers(cfg)
	archives, aerr := archiveOptions(cfg.Archive)
	if err = errors.Join(err, journal.SetLevel(cfg.LogLevel), serr, aerr); err != nil {
		return provision.Options{}, err
	}
	log := journal.New(os.Stderr)
	egress := egressIdentity(log, cfg)
	return provision.Options{
		Egress: cfg.EgressProgram, EgressUID: egress.uid, EgressGID: egress.gid, DNSServers: servers,
		Secrets: cfg.Secrets, Archives: archives,
		Backend: cfg.Backend, State: cfg.State, Run: cfg.Run, Homes: cfg.Homes, Userdb: cfg.UserDB,
		Account: cfg.Account,
		Shim:    cfg.Shim, Enforce: cfg.Enforce, Cgroup: cfg.Cgroup,
		UIDs:     state.Range(cfg.UIDs),
		AuditMax: int64(cfg.AuditMax), AuditKeep: cfg.AuditKeep, LandlockABI: cfg.LandlockMinABI,
		MaxAwake:       cfg.MaxAwake,
		MaxAwakeMemory: cfg.MaxAwakeMemory, Shares: cfg.OwnerShares, FileMax: int64(cfg.FileMax),
		Profiles:  cfg.Profiles,
		FileRules: rules, AllowMissing: cfg.AllowMissing, Version: version, Log: log,
	}, nil
}

// archiveOptions is the key archive of the config, with the user of its command looked up.
func archiveOptions(a *config.Archive) (*provision.ArchiveOptions, error) {
	if a == nil {
		return nil, nil
	}
	o := &provision.ArchiveOptions{
		Options:    archives.Options{Dir: a.Dir, Command: a.Command, Expire: a.ExpireAfter.D()},
		Recipients: a.Recipients, Identities: a.Identities, Program: a.Program,
	}
	if len(a.Command) == 0 {
		return o, nil
	}
	id, err := userIdentity(a.User)
	if err != nil {
		return nil, chat.Invalid("cannot use archive.user %s: %w", chat.Quote(a.User), err)
	}
	o.UID, o.GID = id.uid, id.gid
	return o, nil
}

// resolvConf is the host's, resolv.conf(5).
const resolvConf = "/etc/resolv.conf"

// dnsServers are those of the config or, if it names none, those of the host. A host without the
// file asks itself.
func dnsServers(cfg config.Config) ([]netip.AddrPort, error) {
	if len(cfg.DNSServers) > 0 {
		return cfg.DNSServers, nil
	}
	f, err := os.Open(resolvConf)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("cannot read the DNS servers: %w", err)
	}
	if err != nil {
		return []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:53")}, nil
	}
	defer f.Close()
	return config.ReadResolvConf(f), nil
}

// listenOn takes over the socket that systemd made for chatd.socket and chatd serve was handed
// as descriptor fd, and makes one where that is 0.
func listenOn(fd int, path string, gids ...uint32) (net.Listener, error) {
	if fd == 0 {
		return listen.Unix(path, gids...)
	}
	return listen.Inherit(os.NewFile(uintptr(fd), "LISTEN_FD"), path, gids...)
}
