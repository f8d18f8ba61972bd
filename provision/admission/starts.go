package admission

import (
	"context"
	"fmt"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/quota"
	"github.com/chatd/chatd/provision/layers"
	"github.com/chatd/chatd/provision/packetrules"
)

// Starts lets something new begin.
type Starts struct {
	// Again receives what [Starts.LookAgain] requests.
	Again  chan struct{}
	layers *layers.Set
	rules  *packetrules.Rules
	slots  *quota.Limiter
}

// startHold is how long one start may occupy its slot. A start that takes longer is waiting for
// the chat's own ~/.bashrc, or for an overloaded host.
const startHold = 3 * time.Second

// NewStarts returns a Starts with slots for so many simultaneous starts.
func NewStarts(set *layers.Set, rules *packetrules.Rules, slots int) *Starts {
	return &Starts{
		layers: set, rules: rules, slots: quota.NewLimiter(slots, startHold), Again: make(chan struct{}, 1),
	}
}

// MayBegin refuses every start until a probe has found each required wall in force, and while the
// packet rules are not as chatd wrote them.
func (s *Starts) MayBegin(ctx context.Context) error {
	if err := s.layers.Await(ctx); err != nil {
		if s.layers.Tried() {
			s.LookAgain()
		}
		return err
	}
	return s.rules.Await(ctx)
}

// LookAgain requests another probe, for layers that the last one could not try.
func (s *Starts) LookAgain() {
	select {
	case s.Again <- struct{}{}:
	default:
	}
}

// Start is the permission to begin something in a chat. A verb asks for it once, however many of
// its acts need it.
type Start struct {
	of    *Starts
	stand bool // every wall was found in force
	leave func()
}

// New returns a permission that nobody has asked for yet.
func (s *Starts) New() *Start { return &Start{of: s} }

// MayBegin is [Starts.MayBegin], asked once.
func (s *Start) MayBegin(ctx context.Context) (err error) {
	if !s.stand {
		err = s.of.MayBegin(ctx)
		s.stand = err == nil
	}
	return err
}

// Enter waits for a slot to create or wake a chat, which End frees. A start takes most of a core,
// without a CPU quota; hundreds would starve the chats that are awake.
func (s *Start) Enter(ctx context.Context, id chat.ID, owner, verb string) error {
	if s.leave != nil {
		return nil
	}
	leave, err := s.of.slots.Enter(ctx, owner, verb)
	if err != nil {
		return fmt.Errorf("cannot %s chat %s: others are being created and woken: %w: %w",
			verb, id, err, chat.ErrBusy)
	}
	s.leave = leave
	return nil
}

// End frees the slot, if there is one.
func (s *Start) End() {
	if s.leave != nil {
		s.leave()
	}
}
