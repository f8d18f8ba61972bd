package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/config"
	"github.com/chatd/chatd/state"
)

func stateFlag() cli.Flag {
	return &cli.StringFlag{
		Name:      "state",
		EnvVars:   []string{"CHATD_STATE"},
		TakesFile: true,
		Usage:     "`DIRECTORY` of records, key and audit log (default: the config's)",
	}
}

func verifyCommand() *cli.Command {
	return command("verify", alone(verifyAction),
		configFlag(),
		stateFlag(),
		listFlag("under", "look only at the file system mounted at `DIRECTORY`; may be repeated"),
		&cli.DurationFlag{
			Name:  "for",
			Value: time.Hour,
			Usage: "end after this `TIME`, and say where",
		},
	)
}

// stray is what a uid without a chat has on the host.
type stray struct {
	UID   uint32   `json:"uid"`
	Chat  string   `json:"chat,omitempty"` // empty if the audit log does not have it any more
	Files int      `json:"files"`
	First []string `json:"first"` // up to maxStrayPaths paths, quoted
	Find  string   `json:"find"`  // the command that lists all

	mounts []string
}

// verified is the answer of verify --json.
type verified struct {
	Strays  []stray `json:"strays"`
	Entries int     `json:"entries"`
	// Unnamed are files of further uids than Strays has.
	Unnamed int `json:"unnamed,omitempty"`
	// Unseen counts the directories and file systems that were not looked into. Why has the first.
	Unseen int      `json:"unseen,omitempty"`
	Why    []string `json:"why,omitempty"`

	found map[uint32]*stray
}

const (
	maxStrayPaths = 5
	// maxStrays bounds the uids that one answer names.
	maxStrays = 10_000
	// maxWhy bounds the places of which one answer says why they were not looked into.
	maxWhy = 20
)

func verifyAction(c *cli.Context) error {
	if err := needRoot("verify"); err != nil {
		return err
	}
	cfg, err := loadConfig(c)
	if err != nil {
		return err
	}
	v, err := verify(c, cfg)
	if err := answer(c, v, err, straysText(v)); err != nil {
		return err
	}
	if len(v.Strays) > 0 {
		return cli.Exit("", 1)
	}
	return nil
}

// needRoot fails early and clearly: the first thing that needs root would
// otherwise be a directory.
func needRoot(what string) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("cannot %s: want root, this is uid %d: %w", what, os.Geteuid(), chat.ErrDenied)
	}
	return nil
}

// verify reports a uid only if no chat has it before the walk or after it: chats come meanwhile.
func verify(c *cli.Context, cfg config.Config) (v verified, err error) {
	before, err := livingUIDs(c)
	if err != nil {
		return v, err
	}
	v.Strays, v.found = []stray{}, map[uint32]*stray{}
	req := chat.StrayRequest{Spent: between(cfg.UIDs, before), For: c.Duration("for")}
	for _, dir := range c.StringSlice("under") {
		req.Under = append(req.Under, filepath.Clean(dir))
	}
	done := progress(c, "looking for files of reaped chats")
	end, err := scanStrays(c.Context, cfg, req, v.add)
	done()
	if err != nil {
		return v, err
	}
	after, err := livingUIDs(c)
	if err != nil {
		return v, err
	}
	maps.DeleteFunc(v.found, func(uid uint32, _ *stray) bool {
		_, living := slices.BinarySearch(after, uid)
		return living
	})
	if err := nameChats(c.Context, cfg.State, v.found); err != nil {
		return v, err
	}
	v.Entries = end.Entries
	for _, uid := range slices.Sorted(maps.Keys(v.found)) {
		v.Strays = append(v.Strays, *v.found[uid])
	}
	return v, nil
}

// livingUIDs are the uids of all chats, sorted.
func livingUIDs(c *cli.Context) (uids []uint32, err error) {
	all, err := listAll(c.Context, daemon(c), chat.Filter{}, func(chat.Chat) bool { return true })
	for _, ch := range all {
		uids = append(uids, ch.UID)
	}
	slices.Sort(uids)
	return uids, err
}

// between are the ranges of the uids that are not among some, without the last, which probes use.
func between(all config.UIDRange, taken []uint32) (ranges [][2]uint32) {
	low := all.Low
	for _, uid := range append(slices.Clone(taken), all.High) {
		if low < uid && uid <= all.High {
			ranges = append(ranges, [2]uint32{low, uid - 1})
		}
		low = max(low, uid+1)
	}
	return ranges
}

// add takes in a line of the walk.
func (v *verified) add(l chat.StrayLine) {
	if u := l.Unseen; u != nil {
		if v.Unseen++; len(v.Why) < maxWhy {
			v.Why = append(v.Why, chat.QuotePath(string(u.Path))+": "+u.Why)
		}
	}
	f := l.Find
	if f == nil {
		return
	}
	s := v.found[f.UID]
	if s == nil {
		if len(v.found) == maxStrays {
			v.Unnamed++
			return
		}
		s = &stray{UID: f.UID}
		v.found[f.UID] = s
	}
	s.Files++
	if len(s.First) < maxStrayPaths {
		s.First = append(s.First, chat.QuotePath(string(f.Path)))
	}
	mount := shellWord(string(f.Mount))
	if len(s.mounts) < maxStrayPaths && !slices.Contains(s.mounts, mount) {
		s.mounts = append(s.mounts, mount)
		s.Find = fmt.Sprintf("find %s -xdev -uid %d", strings.Join(s.mounts, " "), s.UID)
	}
}

// shellWord quotes a path for a shell, and what a terminal would act on by $'…' of bash.
func shellWord(path string) string {
	const plain = "/._-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if strings.Trim(path, plain) == "" {
		return path
	}
	var word bytes.Buffer
	for _, b := range []byte(path) {
		if strings.IndexByte(plain, b) >= 0 {
			word.WriteByte(b)
		} else {
			fmt.Fprintf(&word, `\x%02x`, b)
		}
	}
	return "$'" + word.String() + "'"
}

// nameChats reads in the audit log which chats had the uids.
func nameChats(ctx context.Context, dir string, found map[uint32]*stray) error {
	if len(found) == 0 {
		return nil
	}
	err := state.ReadAudit(ctx, dir, false, func(l state.AuditLine) error {
		if s := found[l.UID]; s != nil {
			s.Chat = cmp.Or(string(l.Chat), s.Chat)
		}
		return ctx.Err()
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func straysText(v verified) string {
	var b strings.Builder
	for _, s := range v.Strays {
		fmt.Fprintf(&b, "%d files of uid %d, of the reaped chat %s:\n  %s\n  all: %s\n", s.Files, s.UID,
			cmp.Or(s.Chat, "(not in the audit log)"), strings.Join(s.First, "\n  "), s.Find)
	}
	if v.Unnamed > 0 {
		fmt.Fprintf(&b, "%d files of further uids\n", v.Unnamed)
	}
	fmt.Fprintf(&b, "%d names looked at, files of %d reaped chats\n", v.Entries, len(v.Strays))
	if v.Unseen > 0 {
		fmt.Fprintf(&b, "not looked into: %d, among them\n  %s\n", v.Unseen, strings.Join(v.Why, "\n  "))
	}
	return b.String()
}
