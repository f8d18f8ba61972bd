package files

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/chatd/chatd/chat"
)

// maxNames bounds the names in one call's Links, in bytes.
const maxNames = 2 << 20

// maxLinkReport bounds a tool's report on the links of one request, in bytes: the targets, and linkSize
// for each link.
const maxLinkReport, linkSize = 4 << 20, 32

// Link is where one of a request's Links leads, by its number.
type Link struct {
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

// follow records where links lead, before any question or content.
func (c *caller) follow(all []Link) error {
	if c.settled || c.Linked == nil {
		return errors.New("cannot use the answer: it tells of links too late, or nobody asked")
	}
	for _, l := range all {
		c.linked += len(l.To) + linkSize
	}
	if c.linked > maxLinkReport {
		return fmt.Errorf("cannot use the answer: it tells more than %d bytes of links", maxLinkReport)
	}
	c.links = append(c.links, all...)
	return nil
}

// settle passes the links to Linked, once.
func (c *caller) settle() error {
	was := c.settled
	c.settled = true
	if was || len(c.links) == 0 {
		return nil
	}
	return c.Linked(c.links)
}

// Targets are the targets of links by their names in the request. The tool is a process of the
// chat, so its report cannot be trusted.
func Targets(names []string, all []Link) (map[string]string, error) {
	real := map[string]string{}
	for _, l := range all {
		switch {
		case l.N < 0 || l.N >= len(names) || real[names[l.N]] != "":
			return nil, fmt.Errorf("cannot use the answer: it tells of link %d, which was not asked for", l.N)
		case !path.IsAbs(l.To) || len(l.To) > 2*MaxPath || strings.IndexByte(l.To, 0) >= 0:
			return nil, fmt.Errorf("cannot use the answer: a link leads to %s", chat.Quote(l.To))
		}
		real[names[l.N]] = path.Clean(l.To)
	}
	return real, nil
}

// ReadTargets reads the answer of [ResolveTool] about names.
func ReadTargets(r io.Reader, names []string) (map[string]string, error) {
	c := caller{r: bufio.NewReaderSize(r, 64<<10)}
	c.Linked = func([]Link) error { return nil }
	for {
		s, err := readMessage(c.r)
		if err == nil && s.Links == nil {
			err = s.Answer.Check()
		}
		if err == nil {
			err = c.follow(s.Links)
		}
		switch {
		case err != nil:
			return nil, err
		case s.Links == nil:
			return Targets(names, c.links)
		}
	}
}
