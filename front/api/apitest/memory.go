package apitest

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
)

// firstUID is the lowest uid of chatd's default range.
const firstUID = 1879048192

// Memory keeps chats in memory.
type Memory struct {
	// Now is the clock.
	Now func() time.Time
	// OnRun, if set, answers runs in place of the list in Run.
	OnRun func(context.Context, chat.RunSpec) (chat.RunResult, error)
	// OnRunTo, if it is set, is RunTo.
	OnRunTo func(context.Context, chat.RunSpec, chat.Output) (chat.RunResult, error)
	// OnCreate, if set, is called before a chat is made and may refuse.
	OnCreate func(context.Context, chat.Spec) error
	// OnWake, if set, is called before a chat is woken and may refuse.
	OnWake func(context.Context) error
	// OnArchive, if set, is called before a chat is archived, and before an archive is verified or
	// unarchived, and may refuse.
	OnArchive func(context.Context) error
	// Deny, if set, is the file rules of every chat.
	Deny func(op filewire.Op, name string) *filewire.Denial
	// Egress is that of every chat's profile.
	Egress []chat.Allow
	// EgressMayAdd is what a chat may have beyond it.
	EgressMayAdd []chat.Allow
	// HostIs is what Host answers, apart from the counts.
	HostIs chat.Host
	// StatusIs is what Status answers, apart from the counts.
	StatusIs chat.Status

	mu      sync.Mutex
	chats   map[chat.ID]*chat.Chat
	screens map[chat.ID]string
	stuck   map[chat.ID]error
	// usedAfter is the chat that is used when another was reaped.
	usedAfter map[chat.ID]chat.ID
	files     map[chat.ID]map[string][]byte
	onFile    func(context.Context, filewire.Tool, filewire.Begin, io.Reader) (filewire.Answer, error)
	runs      map[chat.ID][]*memoryRun
	nextUID   uint32

	carried      map[chat.ID][]chat.EgressEvent
	connected    map[chat.ID][]chat.EgressConnection
	schedules    map[chat.ID][]chat.Schedule
	nextSchedule int
	memoryArchives
	// Made counts the chats that were made, not found.
	Made int
}

// New returns an empty Memory.
func New() *Memory {
	return &Memory{
		Now:     time.Now,
		chats:   map[chat.ID]*chat.Chat{},
		screens: map[chat.ID]string{},
		stuck:   map[chat.ID]error{}, usedAfter: map[chat.ID]chat.ID{},
		files:   map[chat.ID]map[string][]byte{},
		nextUID: firstUID,

		carried:   map[chat.ID][]chat.EgressEvent{},
		connected: map[chat.ID][]chat.EgressConnection{},
		schedules: map[chat.ID][]chat.Schedule{},
		StatusIs:  chat.Status{Ready: true, Since: time.Now()},
		HostIs: chat.Host{Kernel: "6.18.0", Backend: "cgroupfs", Version: "test", Missing: []chat.LayerName{},
			Allowed: []chat.LayerName{}, Findings: []string{}, Layers: []chat.Layer{{Name: chat.LayerAccount, State: chat.LayerOn, By: "userdb", Probe: "getent found the record"}}},
	}
}

// Create finds or makes the chat of (owner, external id).
func (m *Memory) Create(ctx context.Context, spec chat.Spec) (chat.Chat, bool, error) {
	caller := chat.CallerFrom(ctx)
	spec = spec.WithDefaults(caller.Name)
	if err := spec.Validate(); err != nil {
		return chat.Chat{}, false, err
	}
	if m.OnCreate != nil {
		if err := m.OnCreate(ctx, spec); err != nil {
			return chat.Chat{}, false, err
		}
	}
	if !caller.MayReach(spec.Owner) {
		return chat.Chat{}, false, fmt.Errorf("cannot create a chat for %s: %w", chat.Quote(spec.Owner), chat.ErrDenied)
	}
	id, err := chat.DeriveID([]byte("test key"), spec.Owner, spec.ExternalID, 0)
	if err != nil {
		return chat.Chat{}, false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if c, ok := m.chats[id]; ok {
		found := *c
		found.Ignored = spec.Unlike(c.Labels, chat.EgressChange{Add: c.EgressAdd,
			Remove: c.EgressRemove})
		return found, false, nil
	}
	if err := m.profile(spec.Profile).CheckEgress(chat.EgressChange{Add: spec.EgressAdd,
		Remove: spec.EgressRemove}); err != nil {
		return chat.Chat{}, false, err
	}
	c := m.fresh(id, spec)
	m.chats[id] = c
	m.Made++
	return *c, true, nil
}

func (m *Memory) fresh(id chat.ID, spec chat.Spec) *chat.Chat {
	now := m.Now().UTC()
	c := &chat.Chat{
		ID: id, User: id.User(), UID: m.nextUID, ExternalID: spec.ExternalID, Owner: spec.Owner, Agent: spec.Agent,
		Profile: spec.Profile, Phase: chat.Ready, Home: "/srv/chatd/homes/" + id.User(), Labels: maps.Clone(spec.Labels),
		EgressAdd: spec.EgressAdd, EgressRemove: spec.EgressRemove, Env: maps.Clone(spec.Env),
		CreatedAt: now, UsedAt: now, Limits: chat.DefaultLimits(),
	}
	m.setEgress(c)
	m.nextUID++
	if spec.WantsSession() {
		setAwake(c, true)
	}
	return c
}

// profile is every chat's profile.
func (m *Memory) profile(name string) chat.Profile {
	return chat.Profile{Name: name, Network: chat.NetworkOwn, Egress: m.Egress,
		EgressMayAdd: m.EgressMayAdd}
}

func (m *Memory) setEgress(c *chat.Chat) {
	c.Egress = m.profile(c.Profile).With(chat.EgressChange{Add: c.EgressAdd,
		Remove: c.EgressRemove}).Egress
}

func setAwake(c *chat.Chat, awake bool) {
	c.Awake, c.Usage, c.Frozen = awake, nil, ""
	if awake {
		c.Usage = &chat.Usage{MemoryBytes: 2 << 20, Pids: 3}
	}
}

// List pages through the chats the caller may reach, by id.
func (m *Memory) List(ctx context.Context, f chat.Filter) (chat.Page, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	page := chat.Page{Chats: []chat.Chat{}}
	limit := f.Limit
	if limit == 0 {
		limit = 2 // small, so that everybody who lists must page
	}
	for _, id := range slices.Sorted(maps.Keys(m.chats)) {
		c := m.chats[id]
		if string(id) <= f.Cursor || !chat.CallerFrom(ctx).MayReach(c.Owner) || !matches(c, f) {
			continue
		}
		if len(page.Chats) == limit {
			page.Next = string(page.Chats[limit-1].ID)
			break
		}
		page.Chats = append(page.Chats, *c)
	}
	return page, nil
}

func matches(c *chat.Chat, f chat.Filter) bool {
	k, v, hasValue := strings.Cut(f.Label, "=")
	got, hasKey := c.Labels[k]
	return (f.Owner == "" || c.Owner == f.Owner) &&
		(f.ExternalID == "" || c.ExternalID == f.ExternalID) &&
		(f.Awake == nil || c.Awake == *f.Awake) &&
		(f.Label == "" || hasKey && (!hasValue || got == v))
}

// reach finds a chat for the caller; the lock is held.
func (m *Memory) reach(ctx context.Context, id chat.ID) (*chat.Chat, error) {
	c, ok := m.chats[id]
	if !ok || !chat.CallerFrom(ctx).MayReach(c.Owner) {
		return nil, chat.NoChat(id)
	}
	return c, nil
}

// Get returns one chat.
func (m *Memory) Get(ctx context.Context, id chat.ID) (chat.Chat, error) {
	return m.change(ctx, id, func(c *chat.Chat) error { m.showArchiving(c); return nil })
}

// change changes a chat of the caller, and returns it as it is then.
func (m *Memory) change(ctx context.Context, id chat.ID, do func(*chat.Chat) error) (chat.Chat, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, err := m.reach(ctx, id)
	if err == nil {
		err = do(c)
	}
	if err != nil {
		return chat.Chat{}, err
	}
	return *c, nil
}

// Patch changes labels, egress, variables, limits and profile. Those limits are live that are of
// the cgroup.
func (m *Memory) Patch(ctx context.Context, id chat.ID, p chat.Patch) (chat.Chat, error) {
	if err := p.Validate(); err != nil {
		return chat.Chat{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c, err := m.reach(ctx, id)
	if err != nil {
		return chat.Chat{}, err
	}
	labels, err := p.Apply(c.Labels)
	env, envErr := p.ApplyEnv(c.Env)
	limits, limitsErr := p.ApplyLimits(nil).Apply(c.Limits)
	if err = cmp.Or(err, envErr, limitsErr); err != nil {
		return chat.Chat{}, err
	}
	if p.NoLimits {
		limits = chat.DefaultLimits()
	}
	change := p.ApplyEgress(chat.EgressChange{Add: c.EgressAdd, Remove: c.EgressRemove})
	if err := m.profile(c.Profile).CheckEgress(change); err != nil {
		return chat.Chat{}, err
	}
	c.Labels, c.EgressAdd, c.EgressRemove = labels, change.Add, change.Remove
	m.setEgress(c)
	c.Env, c.Profile = env, cmp.Or(p.Profile, c.Profile)
	changed := &chat.Changed{Now: limits.Differing(c.Limits), NextWake: []string{}}
	if c.Limits = limits; p.ChangesEnv() {
		changed.NextWake, c.OldPlan = []string{"env"}, []string{"env"}
	}
	answer := *c
	answer.Changed = changed
	return answer, nil
}

// Reap forgets the chat, unless [Memory.Stick] said that it cannot.
func (m *Memory) Reap(ctx context.Context, id chat.ID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.reach(ctx, id); err != nil {
		return err
	}
	if err := m.stuck[id]; err != nil {
		return fmt.Errorf("cannot reap chat %s: %w", id, err)
	}
	if c := m.chats[m.usedAfter[id]]; c != nil {
		c.UsedAt = m.Now().UTC()
	}
	delete(m.chats, id)
	delete(m.files, id)
	delete(m.schedules, id)
	return nil
}

// Wake makes the chat awake.
func (m *Memory) Wake(ctx context.Context, id chat.ID) (chat.Chat, error) {
	if m.OnWake != nil {
		if err := m.OnWake(ctx); err != nil {
			return chat.Chat{}, err
		}
	}
	return m.set(ctx, id, true)
}

// Sleep makes the chat sleep.
func (m *Memory) Sleep(ctx context.Context, id chat.ID) (chat.Chat, error) {
	return m.set(ctx, id, false)
}

func (m *Memory) set(ctx context.Context, id chat.ID, awake bool) (chat.Chat, error) {
	return m.change(ctx, id, func(c *chat.Chat) error {
		if c.Phase != chat.Ready {
			return fmt.Errorf("cannot change chat %s: it is %s: %w", id, c.Phase, chat.ErrWrongPhase)
		}
		setAwake(c, awake)
		return nil
	})
}
