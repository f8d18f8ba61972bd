package chat

// Frozen says until when the processes of an awake chat stand still. They keep their memory, and
// run no code. It is empty where they run.
type Frozen string

const (
	// FrozenUntilUsed: it was idle for freeze_after of its profile, or its owner froze it. Its next
	// use thaws it.
	FrozenUntilUsed Frozen = "until_used"
	// FrozenUntilThawed: an operator froze it, also by cgroup.freeze or systemctl freeze. It is not
	// used, and not put to sleep for another, until an operator thaws it.
	FrozenUntilThawed Frozen = "until_thawed"
)

// Words are for people.
func (f Frozen) Words() string {
	switch f {
	case FrozenUntilUsed:
		return "frozen until it is used"
	case FrozenUntilThawed:
		return "frozen until an operator thaws it"
	}
	return ""
}
