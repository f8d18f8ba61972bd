package netpolicy

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// earlierTables are the nft tables of earlier versions, in which chats shared the host's loopback
// (adrs/0009).
var earlierTables = []string{"chatd", "chatd-form"}

// removeLoopback deletes the tables of earlier versions. A host whose tables nft(8) cannot list, or
// that lacks it, has none.
func removeLoopback(ctx context.Context) error {
	nft, err := exec.LookPath("nft")
	if err != nil {
		return nil
	}
	tables, err := command(ctx, "", nft, "list", "tables", "inet")
	if err != nil {
		return nil
	}
	for _, name := range earlierTables {
		if !strings.Contains(tables+"\n", "table inet "+name+"\n") {
			continue
		}
		if _, err := command(ctx, "", nft, "delete", "table", "inet", name); err != nil {
			return fmt.Errorf("cannot delete the nft table inet %s: %w", name, err)
		}
	}
	return nil
}
