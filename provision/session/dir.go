package session

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/safefs"
)

// Dir is root's directory of one session. It lies in the run directory: a reboot, which ends every
// session, removes it too.
type Dir struct {
	Parent string
	Chat   chat.ID
	UID    uint32
}

// Path is the directory itself.
func (d Dir) Path() string { return filepath.Join(d.Parent, string(d.Chat)) }

// Prompt is the fifo through which the shell reports its prompt, and Log the fifo of the terminal's
// output (fifo(7)).
func (d Dir) Prompt() string { return filepath.Join(d.Path(), "prompt") }

// Log is a fifo; see [Dir.Prompt].
func (d Dir) Log() string { return filepath.Join(d.Path(), "log") }

// Policy is the directory from which the shims of a session read their policy. It is a directory
// because a bind mount of a file would not show the file's replacement.
func (d Dir) Policy() string { return filepath.Join(d.Path(), "policy") }

// Make makes the directory anew, with policy for the shims, and opens the read end of the fifo
// Prompt. A fifo holds at most 64 KiB; a socket made by root would keep root's uid.
func (d Dir) Make(policy []byte) (prompt *os.File, err error) {
	if err := d.Remove(); err != nil {
		return nil, err
	}
	if err := safefs.MakeRoot(d.Path(), 0o711); err != nil {
		return nil, err
	}
	err = errors.Join(sys.MakeFIFO(d.Prompt(), d.UID), sys.MakeFIFO(d.Log(), d.UID),
		d.makePolicy(policy))
	if err != nil {
		return nil, err
	}
	return sys.OpenFIFO(d.Prompt())
}

// Remove removes the directory, which need not be there.
func (d Dir) Remove() error { return safefs.Remove(d.Parent, string(d.Chat)) }

// makePolicy makes the directory, and the policy in it. Both are root's; the chat may read them
// through its group, and no other chat may.
func (d Dir) makePolicy(text []byte) error {
	if err := safefs.MakeRoot(d.Policy(), 0o750); err != nil {
		return err
	}
	if err := os.Lchown(d.Policy(), 0, int(d.UID)); err != nil {
		return fmt.Errorf("cannot give %s to group %d: %w", d.Policy(), d.UID, err)
	}
	return d.WritePolicy(text)
}

// WritePolicy replaces the policy of the shims, in one step. Without a policy, if text is nil,
// they refuse only the commands that never run.
func (d Dir) WritePolicy(text []byte) error {
	name := filepath.Join(d.Policy(), "policy.json")
	if text == nil {
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("cannot take away the policy of the shims: %w", err)
		}
		return nil
	}
	err := safefs.Replace(name, func(aside string) error {
		if err := safefs.WriteNew(aside, text, 0o640); err != nil {
			return err
		}
		return os.Lchown(aside, 0, int(d.UID))
	})
	if err != nil {
		return fmt.Errorf("cannot write the policy of the shims of chat %s: %w", d.Chat, err)
	}
	return nil
}

// TrustPEM and TrustJKS are what the programs of the session trust, where that is not what the host
// does.
func (d Dir) TrustPEM() string { return filepath.Join(d.Path(), "trust.pem") }

// TrustJKS is a key store of Java; see [Dir.TrustPEM].
func (d Dir) TrustJKS() string { return filepath.Join(d.Path(), "trust.jks") }

// WriteTrust writes both, for everybody to read: they are public.
func (d Dir) WriteTrust(pem, jks []byte) error {
	err := errors.Join(safefs.ReplaceFile(d.TrustPEM(), pem, 0o444),
		safefs.ReplaceFile(d.TrustJKS(), jks, 0o444))
	if err != nil {
		return fmt.Errorf("cannot write what chat %s trusts: %w", d.Chat, err)
	}
	return nil
}

// HasTrust reports whether WriteTrust was called before the session began.
func (d Dir) HasTrust() bool {
	_, err := os.Lstat(d.TrustPEM())
	return err == nil
}
