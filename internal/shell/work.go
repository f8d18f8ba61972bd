package shell

import (
	"fmt"

	"github.com/chatd/chatd/chat"
)

// Bounds on what a text makes of itself, because a daemon that all chats share checks it. "xargs
// xargs xargs …" is a command for each of its words, each with all the words behind it (120 KiB
// took 7 GB and four minutes, tried). Each side of a pipe takes over all variables.
const (
	maxArgs   = 1 << 18  // words of all commands together
	maxCopies = 1 << 20  // variables taken over by subshells
	maxBytes  = 16 << 20 // of all words, values and paths together
	maxLooks  = 1 << 20  // into functions, for one that starts itself
	maxJoined = 1 << 29  // of values and parts of words, as they are put together
)

// spending is what was made of the text so far.
type spending struct{ args, copies, bytes, joined, looks, found int }

// spend adds n to a count, and records in tooFar that it exceeds its bound.
func (x *extractor) spend(on *int, n, max int, what string) bool {
	if *on += n; *on > max && x.tooFar == nil {
		x.tooFar = tooMuch("at most %d %s in it", max, what)
	}
	return *on <= max
}

// tooMuch is the error of a text that goes past a bound.
func tooMuch(want string, args ...any) error {
	return fmt.Errorf("cannot check the command: want "+want+": %w", append(args, chat.ErrInvalid)...)
}

// spendWords is spend for the words of a command.
func (x *extractor) spendWords(args []word) bool {
	return x.spend(&x.spent.args, len(args), maxArgs, "words") && x.spendBytes(textOf(args))
}

func (x *extractor) spendBytes(n int) bool {
	return x.spend(&x.spent.bytes, n, maxBytes, "bytes of words and paths")
}

func (x *extractor) spendJoined(n int) bool {
	return x.spend(&x.spent.joined, n, maxJoined, "bytes of parts of words")
}

// set gives a variable its value. Its old value in this shell is no longer counted.
func (x *extractor) set(sh *shell, name string, values []word) {
	if sh.sizes == nil {
		sh.sizes = map[string]int{}
	}
	size := textOf(values)
	if !x.spendBytes(size - sh.sizes[name]) {
		return
	}
	sh.sizes[name], sh.vars[name] = size, x.atMost(values)
}

// textOf is how many bytes the words have.
func textOf(list []word) (n int) {
	for _, w := range list {
		n += len(w.text)
	}
	return n
}

// sub is a subshell, which takes over what sh knows.
func (x *extractor) sub(sh *shell) *shell {
	if !x.spend(&x.spent.copies, len(sh.vars), maxCopies, "variables of subshells") {
		return newShell(sh.home, sh.cwd) // nothing more is found
	}
	return sh.sub()
}
