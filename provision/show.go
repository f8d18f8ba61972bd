package provision

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/state"
)

// shown is an answer with the chat, or without it where the act failed.
func (m *Manager) shown(ctx context.Context, c subject, err error) (chat.Chat, error) {
	if err != nil {
		return chat.Chat{}, err
	}
	return m.show(ctx, c), nil
}

// Get shows one chat with what it uses and what walls it has now.
func (m *Manager) Get(ctx context.Context, id chat.ID) (chat.Chat, error) {
	rec, err := m.chats.reach(ctx, id)
	if err != nil {
		return chat.Chat{}, err
	}
	c := m.show(ctx, rec)
	c.Work = m.workWords(id)
	return c, nil
}

// List shows the caller's chats, or an operator everybody's, oldest first.
func (m *Manager) List(ctx context.Context, f chat.Filter) (chat.Page, error) {
	page := chat.Page{Chats: []chat.Chat{}}
	if !ownOnly(ctx, &f.Owner) {
		return page, nil
	}
	if !chat.CallerFrom(ctx).MayReach(f.Owner) {
		return page, fmt.Errorf("cannot list chats: %w", chat.ErrDenied)
	}
	limit, size := min(cmp.Or(f.Limit, state.DefaultLimit), state.MaxLimit), 0
	f.Limit = min(limit, 1) // a record at a time: none holds how large it is shown, or who is awake
	for {
		recs, next, err := m.store.List(f)
		if err != nil {
			return chat.Page{}, err
		}
		for _, rec := range recs {
			if f.Awake == nil || *f.Awake == (m.chats.session(rec.ID) != nil) {
				c := m.show(ctx, m.chats.subject(rec))
				b, err := json.Marshal(c)
				if err != nil {
					return chat.Page{}, err
				}
				page.Chats, size = append(page.Chats, c), size+len(b)
			}
		}
		page.Next, f.Cursor = next, next
		if next == "" || len(page.Chats) >= limit || size >= pageBytes {
			return page, nil
		}
	}
}

// ownOnly makes the owner of a list's filter the caller, but for an operator; false if the caller asks
// for another's.
func ownOnly(ctx context.Context, owner *string) bool {
	caller := chat.CallerFrom(ctx)
	if caller.Role == chat.RoleOperator {
		return true
	}
	*owner = cmp.Or(*owner, caller.Name)
	return *owner == caller.Name
}

// pageBytes bounds the JSON of a page of chats, except for its last chat.
const pageBytes = 1 << 20

// show is the record as the API shows it, with what is true now.
func (m *Manager) show(ctx context.Context, rec subject) chat.Chat {
	c := chat.Chat{
		ID: rec.ID, User: rec.ID.User(), UID: rec.UID, ExternalID: rec.ExternalID, Owner: rec.Owner,
		Agent: rec.Agent, Profile: rec.Profile, Phase: rec.Phase, Home: rec.home, Labels: rec.Labels,
		Env:    rec.Env,
		Egress: rec.profile.Egress, EgressAdd: rec.EgressAdd, EgressRemove: rec.EgressRemove,
		CreatedAt: rec.CreatedAt, UsedAt: m.usedAt(rec), Limits: rec.profile.Limits,
		OwnLimits: slices.Sorted(maps.Keys(rec.Limits)),
	}
	s := m.chats.session(rec.ID)
	if s != nil && s.Init.Alive() {
		c.Awake, c.OldPlan, c.Frozen = true, m.mounts.oldPlan(rec, s), m.groups.frozen(rec.ID)
		if u, err := m.groups.Usage(rec.ID); err == nil {
			c.Usage = &u
		}
	}
	if !m.policy.Terse(ctx, rec.Profile) {
		c.FileRules = m.policy.File(rec.Profile).Summary()
	}
	c.Disk, c.Archiving = m.disk.of(rec), m.archive.Progress(rec.ID)
	c.Layers = m.mounts.layersOf(rec, s)
	return c
}

// SetDNSServers replaces the servers that are asked for the names of chats.
func (m *Manager) SetDNSServers(ctx context.Context, servers []netip.AddrPort) error {
	return errors.Join(m.packets.SetServers(ctx, servers), m.gateway.SetServers(ctx, servers))
}

// tookEvents counts what chatd-egress reports of a chat.
func (m *Manager) tookEvents(id chat.ID, events []chat.EgressEvent) {
	m.traffic.Add(id, events)
	m.runs.Refused(id, events)
	if !m.chats.hasChat(id) { // reaped meanwhile
		m.traffic.Forget(id)
	}
}

// EgressLog returns what became of the chat's connections since chatd-root began, and what is
// carried now.
func (m *Manager) EgressLog(ctx context.Context, id chat.ID) (chat.EgressLog, error) {
	rec, err := m.chats.reach(ctx, id)
	if err != nil {
		return chat.EgressLog{}, err
	}
	open := m.gateway.Connections(ctx, rec.ID) // what ends meanwhile is told twice, not never
	l := m.traffic.Of(rec.ID)
	l.Open = open
	return l, nil
}

// processStates are the states of proc_pid_stat(5), except for sleeping.
var processStates = map[byte]chat.ProcessState{
	'R': chat.ProcessRunning, 'D': chat.ProcessBlocked, 'T': chat.ProcessStopped, 't': chat.ProcessStopped,
	'Z': chat.ProcessEnded, 'X': chat.ProcessEnded,
}

// Processes lists the processes of a chat's session; one that is asleep has none.
func (m *Manager) Processes(ctx context.Context, id chat.ID) (chat.Processes, error) {
	rec, err := m.chats.reach(ctx, id)
	if err != nil {
		return chat.Processes{}, err
	}
	var runs map[int]string
	if m.chats.session(id) != nil {
		runs, err = m.groups.Processes(id)
	}
	if err != nil && !errors.Is(err, chat.ErrNotFound) { // it may have gone to sleep meanwhile
		return chat.Processes{}, err
	}
	return readProcesses(runs, rec.UID)
}

// readProcesses reads the processes whose runs are known. It reads no command line: that read
// waits for memory which the chat can keep busy. A process of another uid is not shown: it is
// chatd's own on its way into the session, or has the number of one that has ended.
func readProcesses(runs map[int]string, uid uint32) (out chat.Processes, err error) {
	pids := slices.Sorted(maps.Keys(runs))
	out.LeftOut = max(0, len(pids)-chat.MaxProcesses)
	out.Processes = []chat.Process{}
	for _, pid := range pids[:len(pids)-out.LeftOut] {
		p, rerr := sys.ReadProcess(pid)
		if errors.Is(rerr, os.ErrNotExist) || rerr == nil && p.UID != uid {
			continue
		}
		err = errors.Join(err, rerr)
		out.Processes = append(out.Processes, chat.Process{
			PID: p.Inner, Name: p.Name, State: cmp.Or(processStates[p.State], chat.ProcessSleeping),
			MemoryBytes: p.Memory, CPU: chat.Duration(p.CPU), Run: runs[pid],
		})
	}
	slices.SortFunc(out.Processes, func(a, b chat.Process) int { return cmp.Compare(a.PID, b.PID) })
	return out, err
}

// CheckView checks on this host everything that a profile exposes; see [view.Planner.Check].
func CheckView(opt Options, p chat.Profile) error {
	_, _, err := newManager(opt, nil).mounts.look(p)
	return err
}

// Plan tells what the session of the chat was started from or, while the chat is asleep, what it
// would be. Only an operator may ask: it names paths of the host.
func (m *Manager) Plan(ctx context.Context, id chat.ID) (chat.Plan, error) {
	rec, err := m.chats.reach(ctx, id)
	if err != nil {
		return chat.Plan{}, err
	}
	if chat.CallerFrom(ctx).Role != chat.RoleOperator {
		return chat.Plan{}, fmt.Errorf("cannot tell the plan of chat %s: it names paths of the host, and is for operators: %w", id, chat.ErrDenied)
	}
	s := m.chats.session(id)
	if s != nil && s.Init.Alive() {
		return *s.Plan, nil
	}
	v, notes, err := m.mounts.next(rec)
	if err != nil {
		return chat.Plan{}, err
	}
	return m.startOf(rec, m.spec(rec, v), notes).Describe(), nil
}
