package filewire

import (
	"bufio"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
)

// MaxNames bounds the names in one call's Links, in bytes.
const MaxNames = 2 << 20

// MaxLinkReport bounds a tool's report on the links of one request, in bytes: the targets, and linkSize
// for each link.
const MaxLinkReport, linkSize = 4 << 20, 32

// Link is where one of a request's Links leads, by its number.
type Link struct {
	N  int    `json:"n"`
	To string `json:"to"`
	// No is what the kernel refuses the chat there: "r" to read, "w" to write or to make it.
	No string `json:"no,omitempty"`
}

// checkNames refuses names that do not fit into a request.
func checkNames(names []string) error {
	sum := 0
	for _, n := range names {
		if sum += len(n) + 1; sum > MaxNames {
			return fmt.Errorf("cannot follow the links of %d directories: more than %d bytes of names: %w",
				len(names), MaxNames, chat.ErrUnsupported)
		}
	}
	return nil
}

// ReadTargets reads the answer of [ResolveTool] about names: where links lead, by those. The tool is a
// process of the chat, so its report cannot be trusted.
func ReadTargets(r io.Reader, names []string) (map[string]Link, error) {
	in, real, size := bufio.NewReaderSize(r, 64<<10), map[string]Link{}, 0
	for {
		s, err := readMessage(in)
		if err == nil && s.Links == nil {
			return real, s.Answer.Check()
		}
		for _, l := range s.Links {
			switch size += len(l.To) + linkSize; {
			case size > MaxLinkReport:
				err = fmt.Errorf("cannot use the answer: over %d bytes of links", MaxLinkReport)
			case l.N < 0 || l.N >= len(names) || real[names[l.N]].To != "":
				err = fmt.Errorf("cannot use the answer: it tells of link %d, which was not asked for", l.N)
			case !slices.Contains([]string{"", "r", "w", "rw"}, l.No), !path.IsAbs(l.To) ||
				len(l.To) > 2*MaxPath || strings.IndexByte(l.To, 0) >= 0:
				err = fmt.Errorf("cannot use the answer: a link leads to %s", chat.Quote(l.To))
			default:
				l.To = path.Clean(l.To)
				real[names[l.N]] = l
			}
			if err != nil {
				break
			}
		}
		if err != nil {
			return nil, err
		}
	}
}
