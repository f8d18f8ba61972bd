package provision

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/diskquota"
	"github.com/chatd/chatd/provision/terminal"
	"github.com/chatd/chatd/state"
)

// disk bounds and counts what chats have on disk.
type disk struct {
	*chats
	logs       *terminal.Logs
	diskQuotas *diskquota.Disks
	diskWatch  *diskquota.Watch
}

// cleanUpFSize is the largest file that a chat may write while it is far over its limit, and nothing
// but chatd's count bounds it: a block. It can remove files, and not write much.
const cleanUpFSize = 4 << 10

// enable makes file systems enforce quotas that only count, and audits that: it holds for all
// users there, and somebody may have turned them off. One that cannot is a finding.
func (d *disk) enable(ctx context.Context) {
	enabled, err := d.diskQuotas.Enable()
	if len(enabled) > 0 {
		d.log.Warn("turned on user quotas", "dirs", enabled)
		what := map[string]string{"layer": string(chat.LayerDisk),
			"what": "turned on user quotas in " + strings.Join(enabled, ", ")}
		err = d.trail.Outcome(ctx, state.Record{}, "mend", what, err)
	}
	d.trail.Report("disk quotas", err)
}

// create sets the quotas of the chat's uid; also those of a living chat, whose limits changed.
func (d *disk) create(_ context.Context, rec subject) error {
	return d.diskQuotas.Set(rec.UID, rec.diskLimit())
}

func (d *disk) drift(_ context.Context, rec subject) (string, error) {
	return d.diskQuotas.Drift(rec.UID, rec.diskLimit())
}

// remove clears them: a uid is never used again, and the kernel may forget it.
func (d *disk) remove(_ context.Context, rec subject) error {
	d.diskWatch.Forget(rec.ID)
	return d.diskQuotas.Clear(rec.UID)
}

// chat is the chat as package diskquota knows it.
func (d *disk) chat(rec subject) diskquota.Chat {
	return diskquota.Chat{
		ID: rec.ID, UID: rec.UID, Limit: rec.diskLimit(), Awake: d.chats.session(rec.ID) != nil,
		Used: rec.UsedAt,
		Tree: func(dir string) string {
			if dir == d.dirs.Homes || dir == d.dirs.Snapshots {
				return filepath.Base(rec.home)
			}
			return rec.ID.User()
		},
	}
}

func (d *disk) all() (chats []diskquota.Chat) {
	for _, rec := range d.store.All() {
		if rec.Phase == chat.Ready {
			chats = append(chats, d.chat(d.chats.subject(rec)))
		}
	}
	return chats
}

// of is what the chat has on disk; nil if that is not known.
func (d *disk) of(rec subject) *chat.DiskUsage {
	u, err := d.diskWatch.Of(d.chat(rec))
	if err != nil {
		d.log.Debug("cannot look at the disk of a chat", "chat", rec.ID, "error", err)
		return nil
	}
	return u
}

// reportFull writes that a chat's disk fills into its terminal's log, chatd's and the audit log.
func (d *disk) reportFull(c diskquota.Chat, u chat.DiskUsage, level int) {
	rec, err := d.chats.get(c.ID)
	if err != nil {
		return // reaped meanwhile
	}
	words := chat.DiskWords(u, rec.profile.Limits.DiskLimits)
	d.log.Warn("a chat fills its disk", "chat", c.ID, "level", level, "why", words)
	d.trail.Note(context.Background(), rec.Record, "limit", map[string]string{"why": words}, nil)
	d.logs.Say(c.ID, words)
}

// processLimits are those of each process of the chat. One that is far over its disk limit, where
// nothing enforces that, can only clean up: it writes no file larger than a block.
func (d *disk) processLimits(rec subject) chat.ProcessLimits {
	l := rec.profile.Limits.ProcessLimits
	if d.over(rec) != "" {
		l.FSize = cleanUpFSize
	}
	return l
}

// over says why a chat is far over its limit, which nothing enforces; empty if it is not.
func (d *disk) over(rec subject) string {
	return d.diskWatch.Over(rec.ID, rec.diskLimit())
}

// sayCleanUp says in the terminal's log why a chat that wakes can write no files.
func (d *disk) sayCleanUp(rec subject) {
	if why := d.over(rec); why != "" {
		d.logs.Say(rec.ID, "the chat can write no files until it has removed some: "+why)
	}
}
