package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/chatd/chatd/access"
	"github.com/chatd/chatd/api"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/mcp"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/state"
)

func init() { probeHost, raiseWall = doctorHost, wallHost }

// shutdownGrace is how long requests that are under way may take when the daemon
// ends; tests shorten it.
var shutdownGrace = 10 * time.Second

// runsGrace is how long after that the runs of waiting callers may take to end, and the
// callers to be told by what; tests shorten it.
var runsGrace = 5 * time.Second

// serve runs the daemon until ctx ends. Sessions and packet rules outlive it. To be
// told to end is no failure, also before it is up.
func serve(ctx context.Context, cfg Config) (err error) {
	if err := needRoot("serve"); err != nil {
		return err
	}
	opt, err := provisionOptions(cfg)
	if err != nil {
		return err
	}
	// Nothing the daemon makes is for others unless it says so.
	syscall.Umask(0o077)
	var start starting
	opt.Progress = start.did
	up := start.extend(opt.Log, startMore/3, startPatience)
	defer up()
	m, err := provision.Start(ctx, opt)
	if err != nil {
		return endedEarly(ctx, opt.Log, err)
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	operators, bridges := groupIDs(opt.Log, cfg.OperatorsGroup), groupIDs(opt.Log, cfg.BridgeGroup)
	l, err := listen(cfg.Socket, append(bridges, operators...)...)
	if err != nil {
		return err
	}
	srv := api.NewServer(api.ServerOptions{
		Chats: m, Operators: operators, Bridges: bridges, NameOf: userName, Log: opt.Log, Version: version,
		MaxFile: opt.FileMax, MaxStreams: maxStreams(opt.Shares),
		MCP: mcp.NewWeb(version).Handler,
	})
	if names := operatorsOnly(cfg); len(names) > 0 {
		opt.Log.Warn("only operators can create chats in these profiles; their key bridges can name owners", "profiles", names)
	}
	go reload(ctx, m, cfg, opt.Log)
	opt.Log.Info("serving, and trying the walls", "socket", cfg.Socket, "state", cfg.State, "version", version)
	d := daemonOn{
		srv: srv, log: opt.Log, answers: selfCheck(cfg.Socket, m.Alive), endRuns: m.EndForeground,
		settle: func(ctx context.Context) error {
			defer up()
			return endedEarly(ctx, opt.Log, m.Settle(ctx))
		},
	}
	return d.serve(ctx, l)
}

// endedEarly makes no failure of a start that was told to end, whatever was cut short.
func endedEarly(ctx context.Context, log *slog.Logger, err error) error {
	if err != nil && ctx.Err() != nil {
		log.Info("ending before chatd was up", "at", err)
		return nil
	}
	return err
}

// reload reads the config and the files of rules again at each SIGHUP, until ctx ends.
func reload(ctx context.Context, m *provision.Manager, cfg Config, log *slog.Logger) {
	ctx = chat.WithCaller(ctx, chat.Caller{Name: "root", Role: chat.RoleOperator})
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGHUP)
	defer signal.Stop(told)
	for {
		select {
		case <-ctx.Done():
			return
		case <-told:
			m.ReloadFrom(ctx, func() (map[string]*access.Policy, map[string]chat.Profile, error) { return readAgain(log, cfg) })
		}
	}
}

// readAgain reads what a running daemon can take over: the file rules of all profiles, and
// what their runs are judged by.
func readAgain(log *slog.Logger, was Config) (map[string]*access.Policy, map[string]chat.Profile, error) {
	cfg, err := was.again()
	if err != nil {
		return nil, nil, err
	}
	if err := setLogLevel(cfg.LogLevel); err != nil {
		return nil, nil, err
	}
	policies, err := readAccess(cfg)
	if err != nil {
		return nil, nil, err
	}
	differ, err := restartNeeded(was, cfg)
	if err == nil && differ {
		log.Warn("the config has changed in more than log_level, guard, tools_off, timeout_max and file rules; the rest waits for a restart")
	}
	return policies, cfg.Profiles, err
}

// daemonOn is what answers, and what it still has to do before it is ready.
type daemonOn struct {
	srv     *api.Server
	log     *slog.Logger
	answers func(context.Context) (string, error)
	// settle returns when everything may begin, with nil also when ctx ended before.
	settle func(context.Context) error
	// endRuns ends the runs whose callers wait, and counts them.
	endRuns func() int
}

// serve answers on l from now until ctx ends, and then lets requests finish for a while.
// A run that takes longer is ended by endRuns, and its caller has its result; what is left
// then is cut off. So a restart of chatd never waits for a chat. systemd hears that chatd is ready when settle has returned: what
// is ordered after chatd.service may create chats then, and not only ask for them.
func (d daemonOn) serve(ctx context.Context, l net.Listener) error {
	every, guarded, err := watchInterval()
	if err != nil {
		return errors.Join(err, l.Close())
	}
	ended := make(chan error, 1)
	go func() { ended <- d.srv.Serve(l) }()
	err = d.settle(ctx)
	if err == nil && ctx.Err() == nil {
		d.log.Info("ready")
		err = tell(daemon.SdNotifyReady)
	}
	if err != nil || ctx.Err() != nil {
		return errors.Join(err, d.shutdown(ended))
	}
	watching, unwatch := context.WithCancel(ctx)
	defer unwatch()
	go watch(watching, d.log, every, guarded, d.answers)
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	return d.shutdown(ended)
}

// shutdown waits for what is under way, for a while.
func (d daemonOn) shutdown(ended chan error) error {
	d.log.Info("ending; sessions live on")
	if err := tell(daemon.SdNotifyStopping, "STATUS=waiting for requests to finish"); err != nil {
		d.log.Warn("systemd does not hear chatd", "why", err)
	}
	end, cancel := context.WithTimeout(context.Background(), shutdownGrace+runsGrace)
	defer cancel()
	defer time.AfterFunc(shutdownGrace, func() {
		if n := d.endRuns(); n > 0 {
			d.log.Warn("ended runs whose callers wait, because chatd ends; background runs go on", "runs", n, "after", shutdownGrace)
		}
	}).Stop()
	err := d.srv.Shutdown(end)
	if errors.Is(err, context.DeadlineExceeded) {
		d.log.Warn("requests were cut off", "after", shutdownGrace+runsGrace)
		err = nil
	}
	return errors.Join(err, <-ended)
}

// selfCheck asks the daemon as any caller does, over its socket, and counts the
// chats behind it. A daemon too busy to take one more request has answered.
func selfCheck(socket string, alive func(context.Context) (chats, awake int, err error)) func(context.Context) (string, error) {
	c := api.NewClient(api.ClientOptions{Socket: socket})
	return func(ctx context.Context) (string, error) {
		var p *api.Problem
		if _, err := c.List(ctx, chat.Filter{Limit: 1}); err != nil && !(errors.As(err, &p) && errors.Is(err, chat.ErrBusy)) {
			return "", err
		}
		chats, awake, err := alive(ctx)
		return fmt.Sprintf("%d chats, %d awake", chats, awake), err
	}
}

// needRoot fails early and clearly: the first thing that needs root would
// otherwise be a directory.
func needRoot(what string) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("cannot %s: want root, this is uid %d: %w", what, os.Geteuid(), chat.ErrDenied)
	}
	return nil
}

func provisionOptions(cfg Config) (provision.Options, error) {
	rules, err := readAccess(cfg)
	if err = errors.Join(err, setLogLevel(cfg.LogLevel)); err != nil {
		return provision.Options{}, err
	}
	return provision.Options{
		Backend: cfg.Backend, State: cfg.State, Run: cfg.Run, Homes: cfg.Homes, Userdb: cfg.UserDB, Account: cfg.Account,
		Shim: cfg.Shim, Enforce: cfg.Enforce, Cgroup: cfg.Cgroup, UIDs: state.Range{Low: cfg.UIDs.Low, High: cfg.UIDs.High},
		AuditMax: int64(cfg.AuditMax), AuditKeep: cfg.AuditKeep, LandlockABI: cfg.LandlockMinABI, MaxAwake: cfg.MaxAwake, Shares: cfg.OwnerShares, FileMax: int64(cfg.FileMax), Profiles: cfg.Profiles,
		Access: rules, AllowMissing: cfg.AllowMissing, Version: version, Log: newLog(os.Stderr),
	}, nil
}

// groupIDs is the gid of a group, or none: without the group, only root has its role.
func groupIDs(log *slog.Logger, name string) []uint32 {
	id, err := numberOf("group", name)
	if err != nil {
		log.Warn("nobody but root has the role of this group", "group", name, "why", err)
		return nil
	}
	return []uint32{id}
}

// numberOf asks getent(1): os/user without cgo reads /etc/group alone, and
// groups may come from elsewhere.
func numberOf(database, name string) (uint32, error) {
	out, err := exec.Command("getent", "--", database, name).Output()
	if err != nil {
		return 0, fmt.Errorf("cannot find %s %s: %w", database, name, chat.ErrNotFound)
	}
	f := strings.Split(strings.TrimSpace(string(out)), ":")
	if len(f) < 3 || f[0] != name {
		return 0, fmt.Errorf("cannot read what getent says of %s %s", database, name)
	}
	n, err := strconv.ParseUint(f[2], 10, 32)
	return uint32(n), err
}

// userName resolves a peer. The files come first: getent costs a fork.
func userName(uid uint32) (string, error) {
	n := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(n); err == nil {
		return u.Username, nil
	}
	out, err := exec.Command("getent", "passwd", n).Output()
	if err != nil {
		return "", fmt.Errorf("cannot find the name of uid %d: %w", uid, chat.ErrDenied)
	}
	name, _, _ := strings.Cut(string(out), ":")
	return name, nil
}
