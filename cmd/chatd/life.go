package main

import (
	"cmp"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
)

// lifeCommands change whether a chat is awake, and whether it is there.
func lifeCommands() []*cli.Command {
	return []*cli.Command{
		command("wake", onChat("waking", (*client.Client).Wake, stateLine)),
		command("sleep", onChat("putting to sleep", (*client.Client).Sleep, stateLine)),
		command("freeze", onChat("freezing", (*client.Client).Freeze, stateLine)),
		command("thaw", onChat("thawing", (*client.Client).Thaw, stateLine)),
		reapCommand(),
	}
}

// stateLine is a chat as wake, sleep, freeze and thaw leave it.
func stateLine(ch chat.Chat) string {
	state := map[bool]string{true: "awake", false: "asleep"}[ch.Awake]
	return fmt.Sprintln(ch.ID, cmp.Or(ch.Frozen.Words(), state))
}
