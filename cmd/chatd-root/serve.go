package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/broker"
	"github.com/chatd/chatd/internal/config"
	"github.com/chatd/chatd/internal/journal"
	"github.com/chatd/chatd/provision"
)

// shutdownGrace is how long requests that are under way may take when the daemon
// ends; tests shorten it.
var shutdownGrace = 10 * time.Second

// runsGrace is how long after that the runs of waiting callers may take to end, and their callers
// to get the reason; tests shorten it.
var runsGrace = 5 * time.Second

// serve runs the daemon until ctx ends. Sessions and packet rules outlive it. An end by ctx is no
// failure, even before the daemon is up.
func serve(ctx context.Context, cfg config.Config, a arguments, _ io.Writer) (err error) {
	if err := checkConfig(cfg); err != nil {
		return err
	}
	opt, err := provisionOptions(ctx, cfg, a.compiler)
	if err != nil {
		return err
	}
	// The daemon's files are closed to others, unless it sets their mode.
	syscall.Umask(0o077)
	var start starting
	opt.Progress, opt.Claim = start.did, true
	up := start.extend(opt.Log, startMore/3, startTimeout)
	defer up()
	m, err := provision.Start(ctx, opt)
	if err != nil {
		return endedEarly(ctx, opt.Log, err)
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	operators, bridges := groupIDs(opt.Log, cfg.OperatorsGroup), groupIDs(opt.Log, cfg.BridgeGroup)
	l, err := listenOn(a.inherit, cfg.Socket, append(bridges, operators...)...)
	if err != nil {
		return err
	}
	hung := func(err error) { m.ReportHung("front", err) }
	brokered := broker.ServerOptions{Root: m, NameOf: userName, Log: opt.Log}
	f, err := newFront(a.front, l, opt.Log, brokered, cfg.User, cfg.State, m.BoundFront, hung)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	settings := broker.Settings{
		Version: version, Operators: operators, Bridges: bridges, MaxFile: opt.FileMax,
		MaxStreams: cfg.MaxStreams(),
		LogLevel:   cfg.LogLevel, Grace: shutdownGrace + runsGrace,
	}
	f.change(func(s *broker.Settings) { *s = settings })
	if names := cfg.OperatorsOnly(); len(names) > 0 {
		opt.Log.Warn("only operators can create chats in these profiles; their key bridges can name owners",
			"profiles", names)
	}
	go reload(ctx, m, f, cfg, a.compiler, opt.Log)
	opt.Log.Info("serving, and trying the walls", "socket", cfg.Socket, "state", cfg.State,
		"version", version)
	d := daemonOn{
		front: f.run, log: opt.Log, answers: selfCheck(cfg.Socket, m.Alive), endRuns: m.EndForeground,
		makeReady: func(ctx context.Context) error {
			defer up()
			err := m.ProbeAndReconcile(ctx)
			if err == nil {
				f.change(func(s *broker.Settings) { s.Settled = true })
			}
			return endedEarly(ctx, opt.Log, err)
		},
	}
	return d.serve(ctx)
}

// endedEarly drops the error of a start that was told to end.
func endedEarly(ctx context.Context, log *slog.Logger, err error) error {
	if err != nil && ctx.Err() != nil {
		log.Info("ending before chatd was up", "at", err)
		return nil
	}
	return err
}

// reload reads the config and the files of rules again at each SIGHUP, until ctx ends.
func reload(
	ctx context.Context, m *provision.Manager, f *front, cfg config.Config, c compiler, log *slog.Logger,
) {
	ctx = chat.WithCaller(ctx, chat.Caller{Name: "root", Role: chat.RoleOperator})
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	defer signal.Stop(signals)
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
			again := func() (map[string]*filerules.Policy, map[string]chat.Profile, error) {
				return readAgain(ctx, log, cfg, c, func(now config.Config) error {
					f.change(func(s *broker.Settings) { s.LogLevel = now.LogLevel })
					servers, err := dnsServers(now)
					return errors.Join(err, m.SetDNSServers(ctx, servers), m.ReloadSecrets(ctx))
				})
			}
			m.ReloadFrom(ctx, again)
		}
	}
}

// readAgain reads what a running daemon can take over: the file rules of all profiles, and
// what their runs are checked by. take gets the rest.
func readAgain(
	ctx context.Context, log *slog.Logger, was config.Config, c compiler, take func(config.Config) error,
) (map[string]*filerules.Policy, map[string]chat.Profile, error) {
	cfg, err := c.config(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := journal.SetLevel(cfg.LogLevel); err != nil {
		return nil, nil, err
	}
	policies, err := c.allRules(ctx, cfg)
	if err = errors.Join(err, take(cfg)); err != nil {
		return nil, nil, err
	}
	differ, err := config.RestartNeeded(was, cfg)
	if err == nil && differ {
		log.Warn("the config has changed in more than log_level, dns_servers, limits, env, egress, " +
			"guard, tools_off, timeout_max and file rules; the rest waits for a restart")
	}
	return policies, cfg.Profiles, err
}

// daemonOn is a daemon that answers, with the work that remains before it is ready.
type daemonOn struct {
	// front answers until its context ends, and lets requests finish for a while then.
	front   func(context.Context) error
	log     *slog.Logger
	answers func(context.Context) (string, error)
	// makeReady returns when everything may begin, with nil also when ctx ended before.
	makeReady func(context.Context) error
	// endRuns ends the runs whose callers wait, and counts them.
	endRuns func() int
}

// serve lets the front answer until ctx ends, and then lets requests finish for a while. endRuns
// ends the runs that take longer, whose callers get their results; serve cuts off the rest. So a
// restart of chatd never waits for a chat. systemd learns that chatd is ready when settle has
// returned: units ordered after chatd.service may create chats then.
func (d daemonOn) serve(ctx context.Context) error {
	every, guarded, err := watchInterval()
	if err != nil {
		return err
	}
	serving, end := context.WithCancel(context.Background())
	defer end()
	ended := make(chan error, 1)
	go func() { ended <- d.front(serving) }()
	err = d.makeReady(ctx)
	if err == nil && ctx.Err() == nil {
		d.log.Info("ready")
		err = tell(daemon.SdNotifyReady)
	}
	if err != nil || ctx.Err() != nil {
		return errors.Join(err, d.shutdown(end, ended))
	}
	watching, unwatch := context.WithCancel(ctx)
	defer unwatch()
	go watch(watching, d.log, every, guarded, d.answers)
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	return d.shutdown(end, ended)
}

// shutdown waits for a while for running requests.
func (d daemonOn) shutdown(end func(), ended chan error) error {
	d.log.Info("ending; sessions live on")
	if err := tell(daemon.SdNotifyStopping, "STATUS=waiting for requests to finish"); err != nil {
		d.log.Warn("systemd does not hear chatd", "why", err)
	}
	defer time.AfterFunc(shutdownGrace, func() {
		if n := d.endRuns(); n > 0 {
			d.log.Warn("ended runs whose callers wait, because chatd ends; background runs go on", "runs", n,
				"after", shutdownGrace)
		}
	}).Stop()
	end()
	return <-ended
}

// selfCheck asks the daemon as any caller does, over its socket, and counts the chats behind
// it. A daemon too busy to take one more request has answered.
func selfCheck(
	socket string, alive func(context.Context) (chats, awake int, err error),
) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		status, err := askSelf(ctx, socket)
		if err == nil && !strings.HasPrefix(status, "HTTP/1.1 200 ") &&
			!strings.HasPrefix(status, "HTTP/1.1 503 ") {
			err = fmt.Errorf("it says %s", chat.Quote(status))
		}
		if err != nil {
			return "", fmt.Errorf("cannot ask %s: %w", socket, err)
		}
		chats, awake, err := alive(ctx)
		return fmt.Sprintf("%d chats, %d awake", chats, awake), err
	}
}

// askSelf lists one chat, and returns the first line of the answer.
func askSelf(ctx context.Context, socket string) (status string, err error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if end, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(end); err != nil {
			return "", err
		}
	}
	if _, err := io.WriteString(c,
		"GET /v1/chats?limit=1 HTTP/1.1\r\nHost: chatd\r\nConnection: close\r\n\r\n"); err != nil {
		return "", err
	}
	status, err = bufio.NewReader(io.LimitReader(c, 4096)).ReadString('\n')
	return strings.TrimSpace(status), err
}
