package account

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
)

// lookupTimeout bounds one question to the Name Service Switch, whose services may be on other
// hosts. Tests shorten it.
var lookupTimeout = 10 * time.Second

// Lookup is what getent(1) says of these keys. Where a name service does not answer, the error is
// [chat.ErrBusy] and also context.DeadlineExceeded: whether there is such an entry is unknown.
func Lookup(ctx context.Context, database string, keys ...string) ([]byte, error) {
	ctx, stop := context.WithTimeout(ctx, lookupTimeout)
	defer stop()
	args := append([]string{"--", database}, keys...)
	out, err := exec.CommandContext(ctx, "getent", args...).Output()
	if err != nil && ctx.Err() != nil {
		return out, fmt.Errorf("cannot look up %s in %s: "+
			"a name service of nsswitch.conf does not answer: %w",
			strings.Join(keys, " "), database, errors.Join(chat.ErrBusy, ctx.Err()))
	}
	return out, err
}

// Resolves looks the user up by name and by number.
func Resolves(ctx context.Context, a User) error {
	return getent(ctx, "passwd", a, a.passwd(), 7, 0, 2, 3, 5)
}

// Verify looks up the name, the uid and the group with getent(1), which sees what every
// other program of the host sees. In a Go binary without cgo os/user does not see userdb
// records.
func Verify(ctx context.Context, a User) error {
	group := make(chan error, 1)
	go func() { group <- getent(ctx, "group", a, fmt.Sprintf("%s:%d", a.Name, a.ID), 4, 0, 2) }()
	err := getent(ctx, "passwd", a, a.passwd(), 7, 0, 2, 3, 5)
	return errors.Join(err, <-group)
}

// passwd is the name, the numbers and the home in the account's line.
func (a User) passwd() string { return fmt.Sprintf("%s:%d:%d:%s", a.Name, a.ID, a.ID, a.Home) }

// getent looks up the name and the number in one call. Both answers must have this many fields, and in
// those that are named what is wanted.
func getent(ctx context.Context, database string, a User, want string, count int, named ...int) error {
	out, err := Lookup(ctx, database, a.Name, fmt.Sprint(a.ID))
	if err != nil {
		return fmt.Errorf("cannot find %s %s by name and by number: getent %s: %w", database, a.Name,
			database, err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != 2 || pick(lines[0], count, named) != want || pick(lines[1], count, named) != want {
		return fmt.Errorf("cannot use account %s: getent %s says %q, want %s twice", a.Name,
			database, out, want)
	}
	return nil
}

// pick is the named fields of a line of passwd(5) or group(5); empty if it has not this many.
func pick(line string, count int, named []int) string {
	all := strings.Split(line, ":")
	if len(all) != count {
		return ""
	}
	var picked []string
	for _, i := range named {
		picked = append(picked, all[i])
	}
	return strings.Join(picked, ":")
}

// unknownToNSS reports whether neither the name nor the number resolves any more. getent(1)
// prints the entries of those keys that resolve, and fails when one does not.
func unknownToNSS(ctx context.Context, a User) bool {
	for _, database := range []string{"passwd", "group"} {
		out, err := Lookup(ctx, database, a.Name, fmt.Sprint(a.ID))
		if err == nil || len(out) > 0 {
			return false
		}
	}
	return true
}
