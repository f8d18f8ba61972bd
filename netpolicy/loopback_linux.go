package netpolicy

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// errNoTable is what nft calls "No such file or directory".
var errNoTable = errors.New("the nft table inet chatd is not there")

// writeLoopback makes the nft table hold these policies. A table that stands as
// it was written only gets its opened destinations replaced.
func (t *Table) writeLoopback(ctx context.Context, policies []Policy) error {
	if t.saved == nil {
		return t.loadLoopback(ctx, openedRules(policies))
	}
	now, err := t.listLoopback(ctx)
	switch {
	case err != nil && !errors.Is(err, errNoTable):
		return err
	case err != nil || now != t.saved.nft:
		return t.loadLoopback(ctx, openedRules(policies))
	}
	if _, err := command(ctx, openedText(policies), t.nft, "-f", "-"); err != nil {
		return fmt.Errorf("cannot write the destinations opened on loopback: %w", err)
	}
	return nil
}

// loadLoopback writes the whole nft table in one transaction. The numbers of
// uids outlive it, and so do the chats' open connections to themselves.
func (t *Table) loadLoopback(ctx context.Context, opened []string) error {
	listing, err := command(ctx, "", t.nft, "list", "table", "inet", "chatd")
	if err != nil && !isAbsent(err) {
		return fmt.Errorf("cannot list the nft table inet chatd: %w", err)
	}
	offset, err := freeOffset(listing)
	if err != nil {
		return err
	}
	text := loopbackText(t.opts, opened, offset)
	_, err = command(ctx, text, t.nft, "-f", "-")
	if err == nil {
		return nil
	}
	// A table of another version, whose sets have another form, is replaced whole.
	if _, again := command(ctx, "add table inet chatd\ndelete table inet chatd\n"+text, t.nft, "-f", "-"); again != nil {
		return fmt.Errorf("cannot write the nft table inet chatd: %w", errors.Join(err, again))
	}
	return nil
}

// removeLoopback deletes the nft table, if it is there.
func (t *Table) removeLoopback(ctx context.Context) error {
	return errors.Join(t.deleteTable(ctx, "chatd"), t.deleteTable(ctx, formTable))
}

func (t *Table) deleteTable(ctx context.Context, name string) error {
	text := "add table inet " + name + "\ndelete table inet " + name + "\n"
	if _, err := command(ctx, text, t.nft, "-f", "-"); err != nil {
		return fmt.Errorf("cannot delete the nft table inet %s: %w", name, err)
	}
	return nil
}

// listLoopback is the table without counters and without the elements that
// packets add.
func (t *Table) listLoopback(ctx context.Context) (string, error) {
	out, err := command(ctx, "", t.nft, "-s", "-t", "list", "table", "inet", "chatd")
	if err != nil && isAbsent(err) {
		return "", fmt.Errorf("cannot list it: %w: %w", errNoTable, err)
	}
	if err != nil {
		return "", fmt.Errorf("cannot list the nft table inet chatd: %w", err)
	}
	return out, nil
}

func isAbsent(err error) bool { return strings.Contains(err.Error(), "No such file or directory") }
