package chat

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Phase is a stage in the life of a chat. Awake and asleep are not phases: both are [Ready].
type Phase string

const (
	// Creating: the record is written, and some step is still to do.
	Creating Phase = "creating"
	// Ready: every step is done.
	Ready Phase = "ready"
	// Reaping: the chat is being removed; no other operation is allowed.
	Reaping Phase = "reaping"
)

// DefaultAgent and DefaultProfile fill the empty fields of a [Spec]. ShellProfile is an alias of
// DefaultProfile unless the config has a profile of that name: a rename would leave the uid blocks
// and packet rules of "default" behind, which are kept by the profile's name.
const (
	DefaultAgent   = "main"
	DefaultProfile = "default"
	ShellProfile   = "shell"
)

// Bounds of a caller's texts, in bytes, and of the number of labels.
const (
	MaxExternalID = 512
	MaxName       = 64
	MaxLabels     = 32
	MaxLabelValue = 256
)

// Spec is a caller's request for a new chat.
type Spec struct {
	// ExternalID is the caller's own name for the conversation: any UTF-8 of 1 to 512 bytes. It is
	// stored as data and never becomes a path, an argument or a name.
	ExternalID string `json:"external_id" minLength:"1" maxLength:"512" doc:"The caller's own name for the conversation: any UTF-8, at most 512 bytes."`
	// Owner is the owner of the chat. Empty means the caller; only an operator may name another.
	Owner string `json:"owner,omitempty" maxLength:"64" doc:"Whose chat it is; only an operator may name another than itself."`
	// Profile is the policy; empty means [DefaultProfile].
	Profile string `json:"profile,omitempty" maxLength:"64" doc:"The named policy; default if empty."`
	// Agent selects the per-agent section of the rules; empty means [DefaultAgent].
	Agent string `json:"agent,omitempty" maxLength:"64" doc:"The agent name; main if empty."`
	// Env are variables of its sessions and runs. They override those of the profile; see
	// [CheckEnv].
	Env map[string]string `json:"env,omitempty" doc:"Variables of its terminal and runs, over those of the profile. Not for secrets: every answer shows them."`
	// EgressAdd and EgressRemove are the chat's [EgressChange].
	EgressAdd    []Allow `json:"egress_add,omitempty" maxItems:"64" doc:"Destinations beyond those of the profile, each within its egress_may_add: NAME:PORT, ADDRESS:PORT, CIDR:LOW-HIGH, udp: in front for UDP."`
	EgressRemove []Allow `json:"egress_remove,omitempty" maxItems:"64" doc:"Entries of the profile's egress that do not hold for the chat."`
	// Labels are at most 32 notes of the caller. chatd shows and filters them, and interprets none.
	Labels map[string]string `json:"labels,omitempty" doc:"The caller's own notes, at most 32."`
	// Unarchive makes the chat of the newest archive of its conversation, if it has one and no
	// chat. That takes as long as the home is large.
	Unarchive bool `json:"unarchive,omitempty" doc:"Make the chat of the newest archive of its conversation, if there is one and no chat."`
	// Awake says whether create also starts a session; nil means true.
	Awake *bool `json:"awake,omitempty" doc:"Whether the chat gets a session immediately; true if absent."`
}

// WantsSession reports whether create also starts a session.
func (s Spec) WantsSession() bool { return s.Awake == nil || *s.Awake }

// WithDefaults fills the fields that the caller left empty. owner is the caller's name.
func (s Spec) WithDefaults(owner string) Spec {
	s.Owner = cmp.Or(s.Owner, owner)
	s.Profile = cmp.Or(s.Profile, DefaultProfile)
	s.Agent = cmp.Or(s.Agent, DefaultAgent)
	return s
}

// Validate reports the first invalid field, as [ErrInvalid].
func (s Spec) Validate() error {
	if s.ExternalID == "" {
		return Invalid("cannot use external_id: it is empty")
	}
	return cmp.Or(EgressChange{Add: s.EgressAdd, Remove: s.EgressRemove}.Validate(),
		checkText("external_id", s.ExternalID, MaxExternalID), checkOptional("owner", s.Owner),
		checkOptional("profile", s.Profile), checkOptional("agent", s.Agent), checkOwnEnv(s.Env),
		checkLabels(s.Labels))
}

// checkOptional is [CheckName] of a field that may be empty.
func checkOptional(field, s string) error {
	if s == "" {
		return nil
	}
	return CheckName(field, s)
}

// checkOwnEnv is [CheckEnv] of a chat's own variables.
func checkOwnEnv(env map[string]string) error {
	if name, err := CheckEnv(env); err != nil {
		return fmt.Errorf("cannot use env%s: %w", dotted(name), err)
	}
	return nil
}

// dotted is the suffix that names one entry of a field in an error, as in env."PATH".
func dotted(name string) string {
	if name == "" {
		return ""
	}
	return "." + Quote(name)
}

func checkLabels(labels map[string]string) error {
	if len(labels) > MaxLabels {
		return Invalid("cannot use labels: %d of them, want at most %d", len(labels), MaxLabels)
	}
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if err := checkNote(k, labels[k]); err != nil {
			return err
		}
	}
	return nil
}

func checkNote(key, value string) error {
	return cmp.Or(CheckName("labels", key), checkText("labels."+key, value, MaxLabelValue))
}

// Characters of names.
const (
	lower    = "abcdefghijklmnopqrstuvwxyz"
	upper    = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits   = "0123456789"
	alphabet = lower + upper + digits
)

// CheckName accepts names of profiles, agents, owners and labels: 1 to 64 of A–Z a–z 0–9 . _ - that
// begin with a letter, a digit or an underscore.
func CheckName(field, s string) error {
	if s == "" || len(s) > MaxName || s[0] == '-' || s[0] == '.' || strings.Trim(s, alphabet+"._-") != "" {
		return Invalid("cannot use %s %s: want 1 to %d of A-Z a-z 0-9 . _ - not beginning with . or -", field,
			Quote(s), MaxName)
	}
	return nil
}

func checkText(field, s string, limit int) error {
	switch {
	case len(s) > limit:
		return Invalid("cannot use %s: %d bytes, want at most %d", field, len(s), limit)
	case !utf8.ValidString(s):
		return Invalid("cannot use %s %s: not valid UTF-8", field, Quote(s))
	case strings.IndexByte(s, 0) >= 0:
		return Invalid("cannot use %s %s: it holds a NUL", field, Quote(s))
	}
	return nil
}

// Chat is one conversation as the API shows it.
type Chat struct {
	ID         ID                `json:"id"`
	User       string            `json:"user"`
	UID        uint32            `json:"uid"`
	ExternalID string            `json:"external_id"`
	Owner      string            `json:"owner"`
	Agent      string            `json:"agent"`
	Profile    string            `json:"profile"`
	Phase      Phase             `json:"phase"`
	Awake      bool              `json:"awake"`
	Frozen     Frozen            `json:"frozen,omitempty" enum:"until_used,until_thawed"`
	Home       string            `json:"home"`
	Env        map[string]string `json:"env,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	// Egress is where it may connect; EgressAdd and EgressRemove are how that differs from its
	// profile.
	Egress       []Allow   `json:"egress,omitempty"`
	EgressAdd    []Allow   `json:"egress_add,omitempty"`
	EgressRemove []Allow   `json:"egress_remove,omitempty"`
	CreatedAt    time.Time `json:"created_at"`
	// UsedAt is the time of the last use: now while a run, an attached client or a file tool is
	// active. Otherwise it is the last time the chat was created, woken or typed into, or its
	// terminal printed. Reading the chat or its screen is no use.
	UsedAt time.Time `json:"used_at"`
	Limits Limits    `json:"limits"`
	// OwnLimits names the limits that are the chat's own, and not its profile's.
	OwnLimits []string `json:"own_limits,omitempty"`
	// OldPlan names what its session was started with and is not so any more: it ends with the
	// session. A limit is there while the kernel refuses it; chatd tries again each minute.
	OldPlan []string `json:"old_plan,omitempty" doc:"What its session was started with, or has, and is not so any more: env, commands, limits.memory_max. It holds until the next wake."`
	// Changed is set in the answer to a [Patch].
	Changed *Changed `json:"changed,omitempty" doc:"In the answer to PATCH: what became of what was asked for."`
	// FileRules is the source of the chat's file rules: a file, "built-in defaults" with what they
	// deny, or "none". It is empty if the caller may not see the rules.
	FileRules string `json:"file_rules,omitempty"`
	// Work says what the chat does now, in the answer to a Get: what a reap would end.
	Work []string `json:"work,omitempty" doc:"What it does now; in GET of one chat."`
	// Usage is nil while the chat is asleep.
	Usage *Usage `json:"usage,omitempty"`
	// Disk is nil while it is not known.
	Disk *DiskUsage `json:"disk,omitempty"`
	// Archiving is how far an archive or unarchive is that runs; nil if none does.
	Archiving *ArchiveProgress `json:"archiving,omitempty" doc:"How far its archive or unarchive is."`
	// Layers says for each layer what enforces it now on this host; see [Layer].
	Layers []Layer `json:"layers,omitempty"`
	// Ignored names the fields in which a create differs from the chat that it found; see
	// [Spec.Unlike].
	Ignored []string `json:"ignored,omitempty" doc:"Of a create that found the chat: what was asked for, is not so, and was not changed, as in labels.team. PATCH changes labels."`
}

// Changed tells since when a patch holds. Its words are those of a [Patch] and the keys of a
// profile, as in labels, limits.memory_max, egress, commands.
type Changed struct {
	// Now holds in the session, or everywhere the chat has no session to change.
	Now []string `json:"now"`
	// NextWake is recorded, and holds from the next wake.
	NextWake []string `json:"next_wake"`
	// Retried is recorded and could not be put in force, for Why. chatd tries again each minute,
	// and it holds from the next wake.
	Retried []string `json:"retried,omitempty"`
	Why     string   `json:"why,omitempty"`
}

// Filter narrows a list. Zero fields do not narrow.
type Filter struct {
	Owner      string `json:"owner,omitempty"`
	ExternalID string `json:"external_id,omitempty"`
	// Label is "key=value", or "key" for any value.
	Label  string `json:"label,omitempty"`
	Awake  *bool  `json:"awake,omitempty"`
	Limit  int    `json:"limit,omitempty"`
	Cursor string `json:"cursor,omitempty"`
}

// Page is one part of a list. Next is the cursor of the following part, empty at the end.
type Page struct {
	Chats []Chat `json:"chats"`
	Next  string `json:"next,omitempty"`
}
