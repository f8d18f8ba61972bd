package files

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/chatd/chatd/chat"
)

// maxNames bounds the names of one call whose links are asked about, in bytes.
const maxNames = 2 << 20

// linked is where one of a request's Links leads, by its number.
type linked struct {
	N  int    `json:"n"`
	To string `json:"to"`
}

// checkNames refuses names that do not fit into a request.
func checkNames(names []string) error {
	sum := 0
	for _, n := range names {
		if sum += len(n) + 1; sum > maxNames {
			return fmt.Errorf("cannot follow the links of %d directories: more than %d bytes of names: %w", len(names), maxNames, chat.ErrUnsupported)
		}
	}
	return nil
}

// follow takes in where links lead, before anything is asked or sent. What it is told is
// the chat's word, like a name that it asks about.
func (c *caller) follow(all []linked) error {
	if c.settled {
		return errors.New("cannot use the answer: it tells of links too late")
	}
	if c.real == nil {
		c.real = map[string]string{}
	}
	for _, l := range all {
		switch {
		case l.N < 0 || l.N >= len(c.Links) || c.real[c.Links[l.N]] != "":
			return fmt.Errorf("cannot use the answer: it tells of link %d, which was not asked for", l.N)
		case !path.IsAbs(l.To) || len(l.To) > 2*MaxPath || strings.IndexByte(l.To, 0) >= 0:
			return fmt.Errorf("cannot use the answer: a link leads to %s", chat.Quote(l.To))
		}
		c.real[c.Links[l.N]] = path.Clean(l.To)
	}
	return nil
}

// settle has the rules judge by what the links told, once.
func (c *caller) settle() error {
	if c.settled {
		return nil
	}
	c.settled = true
	if len(c.real) == 0 || c.Linked == nil {
		return nil
	}
	judge, err := c.Linked(c.real)
	if err == nil && judge != nil {
		c.Check = judge
	}
	return err
}
