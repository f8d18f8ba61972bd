package provision

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/policy"
	"github.com/chatd/chatd/state"
)

// checkPatch refuses what the caller may not have, or the chat's session not bear, and names the
// rule.
func (m *Manager) checkPatch(
	ctx context.Context, before, after state.Record, p chat.Patch,
) (rule string, err error) {
	caller, moves := chat.CallerFrom(ctx), before.Profile != after.Profile
	if _, known := m.opt.Profiles[after.Profile]; moves && !known {
		return "", fmt.Errorf("cannot use profile %s: there is none of that name: %w",
			chat.Quote(after.Profile), chat.ErrInvalid)
	}
	profile, asked := m.policy.Profile(after.Profile), p.ApplyLimits(nil)
	for _, name := range []string{after.Profile, before.Profile} {
		if !moves || m.policy.Profile(name).MayUse(caller) {
			continue
		}
		const why = "cannot move chat %s from profile %s to %s: owner %s is not among the bridges of %s: %w"
		return "bridges", fmt.Errorf(why, after.ID, before.Profile, after.Profile,
			chat.Quote(caller.Name), name, chat.ErrDenied)
	}
	if moves || p.ChangesEgress() {
		if err := profile.CheckEgress(after.EgressChange()); err != nil {
			return "egress_may_add", err
		}
	}
	if moves {
		if err := m.checkView(before, after); err != nil {
			return "", err
		}
		asked = after.Limits
		if err := m.policy.Raise(ctx, []policy.Chat{m.chatOf(after)}); err != nil {
			return "", err
		}
	}
	if moves || p.ChangesLimits() {
		if err := profile.CheckLimits(after.Limits, asked, caller); err != nil {
			return "limits", err
		}
	}
	if m.profile(before).Limits != m.profile(after).Limits {
		if err := m.checkPause(caller, after.ID); err != nil {
			return "", err
		}
	}
	if !p.Force && m.profile(after).Limits.MemoryMax < m.profile(before).Limits.MemoryMax {
		return "", m.checkMemory(after)
	}
	return "", nil
}

// growMemory makes room for what an awake chat gets more of memory, and is busy where there is none;
// done is called when its record says so.
func (m *Manager) growMemory(ctx context.Context, before, after state.Record) (done func(), err error) {
	is := m.place(after)
	if is.Memory <= m.place(before).Memory || !m.session(after.ID).lives() {
		return func() {}, nil
	}
	if done, err = m.shares.Grow(ctx, after.ID, is); err != nil {
		return nil, fmt.Errorf("cannot give chat %s more memory while it is awake: %w", after.ID, err)
	}
	return done, nil
}

// limitsPause is how long a bridge waits between two changes of a living chat's limits: the kernel
// gives the quota of a whole period with each new one.
const limitsPause = time.Second

// checkPause refuses a change of limits right after another.
func (m *Manager) checkPause(by chat.Caller, id chat.ID) error {
	s := m.session(id)
	if by.Role == chat.RoleOperator || !s.lives() || time.Since(s.limited()) >= limitsPause {
		return nil
	}
	return fmt.Errorf("cannot change the limits of chat %s: they have just changed: want %s between: %w",
		id, limitsPause, chat.ErrBusy)
}

// checkView refuses to move a chat whose session sees paths of the host that the new profile does not
// open in the same way: with its rules, or its egress, they would meet what neither profile allows.
func (m *Manager) checkView(before, after state.Record) error {
	s := m.session(after.ID)
	if !s.lives() || len(s.Exposed) == 0 {
		return nil
	}
	is := m.basis(after)
	for _, key := range []string{"expose_paths", "allow_read_paths", "allow_write_paths"} {
		if s.Basis[key] != is[key] {
			return fmt.Errorf("cannot move chat %s to profile %s while it is awake: its session sees what "+
				"%s of profile %s opens: put it to sleep first: %w", after.ID, after.Profile, key,
				before.Profile, chat.ErrWrongPhase)
		}
	}
	return nil
}

// checkMemory refuses a memory_max below what the chat holds: cgroup v1 would refuse it, and v2 end
// processes.
func (m *Manager) checkMemory(after state.Record) error {
	most := m.profile(after).Limits.MemoryMax
	if !m.session(after.ID).lives() {
		return nil
	}
	held, err := m.groups.Held(after.ID)
	if errors.Is(err, chat.ErrNotFound) {
		return nil // it has just ended
	}
	if err != nil || held <= most {
		return err
	}
	const then = "let it end programs or put it to sleep, or use force: cgroup v2 ends processes " +
		"then, and v1 waits"
	return fmt.Errorf("cannot set memory_max of chat %s to %d bytes: it holds %d: %s: %w",
		after.ID, most, held, then, chat.ErrBusy)
}
