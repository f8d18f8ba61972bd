package provision

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/policy"
	"github.com/chatd/chatd/state"
)

// reach finds a chat for the caller in ctx. Somebody else's chat is as absent
// as one that never was.
func (m *Manager) reach(ctx context.Context, id chat.ID) (state.Record, error) {
	rec, err := m.store.Get(id)
	if err == nil && !chat.CallerFrom(ctx).MayReach(rec.Owner) {
		if err := m.audit(ctx, rec, "reach", "denied", nil); err != nil {
			return state.Record{}, err
		}
		return state.Record{}, chat.NoChat(id)
	}
	return rec, err
}

// Get shows one chat with what it uses and what walls it has now.
func (m *Manager) Get(ctx context.Context, id chat.ID) (chat.Chat, error) {
	rec, err := m.reach(ctx, id)
	if err != nil {
		return chat.Chat{}, err
	}
	c := m.show(ctx, rec)
	c.Work = m.workWords(id)
	return c, nil
}

// List shows the caller's chats, or an operator everybody's, oldest first.
func (m *Manager) List(ctx context.Context, f chat.Filter) (chat.Page, error) {
	caller := chat.CallerFrom(ctx)
	switch {
	case caller.Role == chat.RoleOperator:
	case f.Owner == "" || f.Owner == caller.Name:
		f.Owner = caller.Name
	default:
		return chat.Page{Chats: []chat.Chat{}}, nil
	}
	if !caller.MayReach(f.Owner) {
		return chat.Page{}, fmt.Errorf("cannot list chats: %w", chat.ErrDenied)
	}
	page := chat.Page{Chats: []chat.Chat{}}
	limit, size := min(cmp.Or(f.Limit, state.DefaultLimit), state.MaxLimit), 0
	f.Limit = min(limit, 1) // a record at a time: none holds how large it is shown, or who is awake
	for {
		recs, next, err := m.store.List(f)
		if err != nil {
			return chat.Page{}, err
		}
		for _, rec := range recs {
			if f.Awake == nil || *f.Awake == (m.session(rec.ID) != nil) {
				c := m.show(ctx, rec)
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

// pageBytes bounds the JSON of a page of chats, except for its last chat.
const pageBytes = 1 << 20

// show is the record as the API shows it, with what is true now.
func (m *Manager) show(ctx context.Context, rec state.Record) chat.Chat {
	c := chat.Chat{
		ID: rec.ID, User: rec.ID.User(), UID: rec.UID, ExternalID: rec.ExternalID, Owner: rec.Owner,
		Agent: rec.Agent, Profile: rec.Profile, Phase: rec.Phase, Home: m.home(rec.ID), Labels: rec.Labels, Env: rec.Env,
		Egress: m.profile(rec).Egress, EgressAdd: rec.EgressAdd, EgressRemove: rec.EgressRemove,
		CreatedAt: rec.CreatedAt, UsedAt: m.usedAt(rec), Limits: m.profile(rec).Limits,
		OwnLimits: slices.Sorted(maps.Keys(rec.Limits)),
	}
	s := m.session(rec.ID)
	if s != nil && s.Init.Alive() {
		c.Awake, c.OldPlan, c.Frozen = true, m.oldPlan(rec, s), m.frozen(rec.ID)
		if u, err := m.groups.Usage(rec.ID); err == nil {
			c.Usage = &u
		}
	}
	if !m.policy.Terse(ctx, rec.Profile) {
		c.FileRules = m.policy.File(rec.Profile).Summary()
	}
	c.Disk, c.Archiving = m.diskOf(rec), m.archive.progressOf(rec.ID)
	c.Layers = m.layersOf(rec, s)
	return c
}

// hasChat reports whether any chat, whoever's, has the id.
func (m *Manager) hasChat(id chat.ID) bool {
	_, err := m.store.Get(id)
	return err == nil
}

// layersOf returns the layers of a chat: the probe's results for this host and
// for its kind of network and, while it is awake, what its session's first process
// read back from the kernel.
func (m *Manager) layersOf(rec state.Record, s *liveSession) []chat.Layer {
	all := m.layers.Of(m.layers.Network(m.profile(rec)))
	if s == nil {
		return all
	}
	for i := range all {
		l := s.Report.Correct(all[i])
		if l.Name == chat.LayerView {
			l = m.policy.ViewLayer(context.Background(), m.chatOf(rec), s.Session, l)
		}
		if l.Name == chat.LayerLandlock && l.State != chat.LayerOff {
			l = policy.LandlockLayer(l, m.sessionView(rec, s))
		}
		all[i] = l
	}
	return all
}
