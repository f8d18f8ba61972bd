package state

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
)

// Sizes of a page of [Store.List], in records.
const (
	DefaultLimit = 100
	MaxLimit     = 1000
)

// cursorSize is eight bytes of creation time and the eight bytes of an id.
const cursorSize = 16

// List returns the records that match the filter, oldest first, those of one instant by id. A limit
// of 0 means DefaultLimit, and one over MaxLimit means MaxLimit; next continues after the last
// record and is empty at the end. A chat that is reaped between two pages moves no other. List
// ignores Filter.Awake. [chat.ErrInvalid]: a cursor that List did not make, an invalid label, a
// negative limit.
func (s *Store) List(f chat.Filter) (recs []Record, next string, err error) {
	limit, match, err := readFilter(f)
	if err != nil {
		return nil, "", err
	}
	var after Record
	if f.Cursor != "" {
		if after, err = parseCursor(f.Cursor); err != nil {
			return nil, "", err
		}
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, r := range s.index.order[s.index.above(&after):] {
		if !match(r) {
			continue
		}
		if len(recs) == limit {
			return recs, cursorOf(&recs[limit-1]), nil
		}
		recs = append(recs, r.clone())
	}
	return recs, "", nil
}

// above is the index of the first record after r, which need not be in the list.
func (x *index) above(r *Record) int {
	if r.ID == "" {
		return 0
	}
	at, found := slices.BinarySearchFunc(x.order, r, byAge)
	if found {
		at++
	}
	return at
}

func readFilter(f chat.Filter) (limit int, match func(*Record) bool, err error) {
	key, value, valued := strings.Cut(f.Label, "=")
	if f.Label != "" {
		if err := chat.CheckName("label", key); err != nil {
			return 0, nil, err
		}
	}
	if f.Limit < 0 {
		return 0, nil, chat.Invalid("cannot list %d chats: want a limit of 0 to %d", f.Limit, MaxLimit)
	}
	if limit = min(f.Limit, MaxLimit); limit == 0 {
		limit = DefaultLimit
	}
	return limit, func(r *Record) bool {
		if f.Owner != "" && r.Owner != f.Owner || f.ExternalID != "" && r.ExternalID != f.ExternalID {
			return false
		}
		v, ok := r.Labels[key]
		return f.Label == "" || ok && (!valued || v == value)
	}, nil
}

// cursorOf names a position in the order, also after its record is gone. It is no secret and grants
// nothing: the filter applies to every page.
func cursorOf(r *Record) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(r.CreatedAt.UnixNano()))
	id, err := hex.AppendDecode(b, []byte(r.ID))
	if err != nil { // an id is hex by construction
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(id)
}

func parseCursor(s string) (Record, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != cursorSize || strings.ContainsAny(s, "\r\n") {
		return Record{}, chat.Invalid("cannot use cursor %s: want one that an earlier page gave",
			chat.Quote(s))
	}
	at := time.Unix(0, int64(binary.BigEndian.Uint64(b))).UTC()
	return Record{CreatedAt: at, ID: chat.ID(hex.EncodeToString(b[8:]))}, nil
}

// All returns every record, oldest first.
func (s *Store) All() []Record {
	s.mu.RLock()
	defer s.mu.RUnlock()
	recs := make([]Record, 0, len(s.index.order))
	for _, r := range s.index.order {
		recs = append(recs, r.clone())
	}
	return recs
}

// Len is the number of records.
func (s *Store) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.index.order)
}
