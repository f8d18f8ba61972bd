package policy

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/provision/enforcer"
	"github.com/chatd/chatd/state"
)

// Options are what the policy of a host needs.
type Options struct {
	// Profiles are those that chatd was started with, and Rules their file rules, by name. A
	// profile without rules has the built-in ones.
	Profiles map[string]chat.Profile
	Rules    map[string]*filerules.Policy
	// Home is an example of the homes that the rules are for.
	Home string
	// Trees returns the trees that every session of a profile sees and no chat can write to.
	Trees func(profile string) []chat.Exposed
	// Dir, Program, Unit and Report are those of [enforcer.Options].
	Dir, Program string
	Unit         bool
	Report       func(error)
	// Chat returns a chat, or an error if there is none with the id.
	Chat func(chat.ID) (Chat, error)
	// Denied hears of each file that a chat was refused.
	Denied func(id chat.ID, d chat.Denied)
	// Audit writes a line about an act that was denied to a chat.
	Audit func(ctx context.Context, id chat.ID, action string, detail map[string]string)
	Log   *slog.Logger
}

// Chat is a chat to which rules apply.
type Chat struct {
	ID                   chat.ID
	UID                  uint32
	Profile, Agent, Home string
	// Egress is how its egress differs from its profile's.
	Egress chat.EgressChange
}

// InForce is the policy in force on a host. Its methods are safe for concurrent use.
type InForce struct {
	opt      Options
	enforcer *enforcer.Client
	book     atomic.Pointer[book]
	keys     atomic.Pointer[keySet] // nil before CheckFirst

	mu       sync.Mutex
	sessions map[chat.ID]bool // of awake chats until Drop: whether rules were ever enforced
}

// New returns the policy of o, which is not checked yet.
func New(o Options) *InForce {
	p := &InForce{opt: o, sessions: map[chat.ID]bool{}}
	p.enforcer = enforcer.New(
		enforcer.Options{Dir: o.Dir, Program: o.Program, Unit: o.Unit, Log: o.Log, Report: o.Report})
	p.SetRules(o.Rules)
	return p
}

// SetRules sets the file rules of the profiles for what begins from now on, without a check.
func (p *InForce) SetRules(rules map[string]*filerules.Policy) {
	p.book.Store(newBook(rules))
}

// Profile returns a profile with the keys in force. One that was taken out of the config leaves
// the zero profile, which opens nothing.
func (p *InForce) Profile(name string) chat.Profile {
	profile := p.opt.Profiles[name]
	if keys := p.keys.Load(); keys != nil {
		profile = keys.in(profile, name)
	}
	return profile
}

// Of is the profile of one chat: its egress and limits are the chat's own.
func (p *InForce) Of(rec state.Record) chat.Profile {
	is := p.Profile(rec.Profile).With(rec.EgressChange())
	if len(rec.Limits) > 0 {
		if l, err := rec.Limits.Apply(is.Limits); err == nil { // else a later chatd wrote it
			is.Limits = l
		}
	}
	return is.As(rec.Agent)
}

// File returns the file of rules of a profile, or the built-in one.
func (p *InForce) File(profile string) *filerules.Policy { return p.book.Load().policy(profile) }

// Enforced reports whether the kernel enforces some rule of the chat.
func (p *InForce) Enforced(c Chat) bool { return p.book.Load().needed(c.Profile, c.Agent) }

// EnforcedProfiles returns the profiles with a rule that the kernel enforces, sorted.
func (p *InForce) EnforcedProfiles() []string { return p.book.Load().enforced() }

// Rules returns the compiled rules of a chat: of its profile, for its agent.
func (p *InForce) Rules(c Chat) (*Rules, error) { return p.book.Load().rules(c) }

// Closed returns the closed paths of a chat. If its rules do not compile, its session does not
// start, and the enforcer reports the reason.
func (p *InForce) Closed(c Chat) []string {
	rules, err := p.Rules(c)
	if err != nil {
		return nil
	}
	return rules.Closed()
}

// Terse reports whether the caller sees no more of the rules of a profile than that they deny: the
// profile says `messages: vague`, and the caller is not an operator, who may read the file of rules
// anyway. An agent may see everything that the bridge sees.
func (p *InForce) Terse(ctx context.Context, profile string) bool {
	return p.File(profile).Terse && chat.CallerFrom(ctx).Role != chat.RoleOperator
}

// Redact returns err as the caller may know it. It comes after the audit log, which has all.
func (p *InForce) Redact(ctx context.Context, profile string, err error) error {
	return redact(err, p.Terse(ctx, profile))
}

// ForShims returns the policy that the shims of a chat check against. It is nil if it cannot be
// marshalled; then the shims refuse only what never runs.
func (p *InForce) ForShims(c Chat) []byte {
	profile := p.Profile(c.Profile)
	rules, err := rulesForShims(p.File(c.Profile), c.Agent)
	var text []byte
	if err == nil {
		text, err = plan.ShimPolicy{
			Home: c.Home, Agent: c.Agent, Guard: profile.Guard, Rules: rules,
		}.JSON()
	}
	if err != nil {
		p.opt.Log.Error("the shims check against no profile", "chat", c.ID, "error", err)
	}
	return text
}
