package chat

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of a path, the kernel's PATH_MAX, and of the command in a question.
const (
	MaxPath    = 4096
	MaxCommand = 64 << 10
)

// Turns bounds how many commands are read and judged simultaneously.
type Turns chan struct{}

// Take waits for a turn; leave ends it.
func (t Turns) Take(ctx context.Context) (leave func(), err error) {
	select {
	case t <- struct{}{}:
		return func() { <-t }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("cannot check the command: %w", context.Cause(ctx))
	}
}

// Question asks whether a chat's file rules allow an operation on a path, or a shell command, or
// whether its profile's egress opens a port of a host.
type Question struct {
	// Path is absolute, below ~, or below the home.
	Path string `json:"path,omitempty" maxLength:"4096" doc:"The path, absolute or below the home. Exactly one of path, command and host."`
	// Op is read, write, edit or bash; it goes with Path.
	Op string `json:"op,omitempty" enum:"read,write,edit,bash" doc:"What is done to the path."`
	// Command is checked by the paths in it.
	Command string `json:"command,omitempty" maxLength:"65536" doc:"A shell command, checked by the paths in it."`
	// Host is a name or an address, without brackets; Port and UDP go with it. See [Destination].
	Host string `json:"host,omitempty" maxLength:"254" doc:"A name or an address, beside port."`
	Port uint16 `json:"port,omitempty" minimum:"1" maximum:"65535" doc:"The port of host."`
	UDP  bool   `json:"udp,omitempty" doc:"By UDP; else by TCP."`
	// Named are the paths in Command, as the front found them. They cross the broker and no
	// other boundary.
	Named []NamedPath `json:"-"`
}

// Validate reports the first invalid field, as [ErrInvalid].
func (q Question) Validate() error {
	switch {
	case countTrue(q.Path != "", q.Command != "", q.Host != "") != 1:
		return Invalid("cannot answer: want exactly one of path, command and host")
	case q.Path == "" && q.Op != "":
		return Invalid("cannot answer: want no op beside a command or a host")
	case q.Host == "" && (q.Port != 0 || q.UDP):
		return Invalid("cannot answer: want port and udp beside a host alone")
	case q.Host != "":
		return q.Destination().Validate()
	case q.Path != "" && !slices.Contains([]string{"read", "write", "edit", "bash"}, q.Op):
		return Invalid("cannot answer: op %s: want read, write, edit or bash", Quote(q.Op))
	case len(q.Command) > MaxCommand:
		return Invalid("cannot answer: a command of %d bytes, want at most %d", len(q.Command), MaxCommand)
	case !utf8.ValidString(q.Command) || strings.IndexByte(q.Command, 0) >= 0:
		return Invalid("cannot answer: the command is not UTF-8 without NUL")
	case q.Command != "":
		return CheckNamed(q.Named)
	}
	return checkPath("path", q.Path)
}

// Destination is what a question about a host is about.
func (q Question) Destination() Destination {
	return Destination{Host: q.Host, Port: q.Port, UDP: q.UDP}
}

// Explained is the answer to a [Question].
type Explained struct {
	// Verdict is allow or deny.
	Verdict string `json:"verdict" enum:"allow,deny" doc:"The answer."`
	// Rule is the text of the rule that decided; empty if none applies. Place is its file and line,
	// Layer its part of the policy.
	Rule  string `json:"rule" doc:"The rule that decided; empty if none is about it."`
	Place string `json:"place" doc:"File and line of the rule."`
	Layer string `json:"layer" doc:"The part of the policy that the rule stands in."`
	// ByKernel means that the rule is about another operation or name. The kernel closes its path,
	// or makes it read-only, for every program, and so refuses this too.
	ByKernel bool `json:"by_kernel,omitempty" doc:"The kernel refuses it because of the rule, which is not about this operation or name itself."`
	// KeptBy are the walls that enforce the denial for every program in the chat's sessions; empty
	// if only the file tools and the guard enforce it.
	KeptBy []string `json:"kept_by,omitempty" doc:"What keeps the denial for every program of the chat: chatd-enforce, bubblewrap, landlock."`
	// Why says of a destination why it is open or closed, and of a command that nothing is open.
	Why string `json:"why,omitempty" doc:"Of a destination: why it is open or closed. Of a command: that its chat has no network."`
	// DeniedBy are all that deny, the one that denies first in front.
	DeniedBy []DeniedBy `json:"denied_by,omitempty" doc:"All that deny it, the one that denies first in front."`
	// Real is where links lead, and Refused what the kernel refuses there by owner, mode and mount:
	// r to read, w to write. Both are the chat's word.
	Real    string `json:"real,omitempty" doc:"Where links of the chat lead from the path."`
	Refused string `json:"refused,omitempty" doc:"What owner, mode or mount refuse there: r to read, w to write."`
	// Name is the checked path: the one in the question, or the target of its links. Of a
	// destination it is its canonical form.
	Name string `json:"name" doc:"The path that was decided on, folded or what links lead to."`
	// Paths are the paths found in a command.
	Paths []string `json:"paths" doc:"The paths that were found in a command."`
	// Guard is the guard's decision on a command; nil for a path. A command runs only if rules and
	// guard allow it.
	Guard *Guarded `json:"guard,omitempty" doc:"What the guard says of a command."`
}

// DeniedBy is one that denies: guard, rules, workspace (what file tools may use), view (what the
// session has of the host, and what the kernel lets its user do) or egress.
type DeniedBy struct {
	By  string `json:"by" enum:"guard,rules,workspace,view,egress" doc:"What denies."`
	Why string `json:"why" doc:"Why."`
	Fix string `json:"fix" doc:"The key that opens it, or that no setting does."`
}

// Guarded is a guard's decision on a command.
type Guarded struct {
	Verdict string `json:"verdict" enum:"allow,deny" doc:"The answer."`
	// Rule is the name of a rule, or a custom pattern, and Place its file:line.
	Rule  string `json:"rule" doc:"The rule that denies; empty if none does."`
	Place string `json:"place" doc:"File and line of the rule."`
	// Message is the text for the agent, Command the simple command or path that is denied.
	Message string `json:"message" doc:"What the agent is told."`
	Command string `json:"command" doc:"The simple command, or path, that is denied."`
	Reason  string `json:"reason" doc:"Why."`
	Instead string `json:"instead" doc:"What to do instead."`
}

// Share is a request to copy one regular file to another chat.
type Share struct {
	// Path is the file in the source chat, absolute or below its home.
	Path string `json:"path" minLength:"1" maxLength:"4096" doc:"The file, absolute or below the home."`
	To   ID     `json:"to" doc:"The chat that gets it: 16 lower-case hex digits."`
	// ToPath is its name there; empty means the same, which then must be below the home.
	ToPath string `json:"to_path,omitempty" maxLength:"4096" doc:"Its name there; the same, if empty and not absolute."`
}

// Validate reports the first invalid field, as [ErrInvalid].
func (s Share) Validate() error {
	if err := checkPath("path", s.Path); err != nil {
		return err
	}
	if _, err := ParseID(string(s.To)); err != nil {
		return fmt.Errorf("cannot use to: %w", err)
	}
	if s.ToPath == "" && strings.HasPrefix(s.Path, "/") {
		return Invalid("cannot use to_path: it is empty, and path is absolute")
	}
	return checkPath("to_path", s.Target())
}

// Target is the name of the copy.
func (s Share) Target() string {
	return cmp.Or(s.ToPath, s.Path)
}

// Shared is a file that was copied to another chat.
type Shared struct {
	// Path and ToPath are the files' physical names, as the chats report them.
	Path   string `json:"path" doc:"What was read, by the name that links lead to."`
	ToPath string `json:"to_path" doc:"What was written, by the name that links lead to."`
	Bytes  int64  `json:"bytes" doc:"How much went across."`
	SHA256 string `json:"sha256" doc:"Of what went across, in hex."`
}

func checkPath(field, p string) error {
	switch {
	case p == "":
		return Invalid("cannot use %s: it is empty", field)
	case len(p) > MaxPath:
		return Invalid("cannot use %s: %d bytes, want at most %d", field, len(p), MaxPath)
	case strings.IndexByte(p, 0) >= 0 || !utf8.ValidString(p):
		return Invalid("cannot use %s %s: want UTF-8 without NUL", field, Quote(p))
	}
	return nil
}
