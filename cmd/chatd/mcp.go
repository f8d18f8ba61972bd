package main

import (
	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/mcp"
)

func mcpCommand() *cli.Command {
	return &cli.Command{
		Name:      "mcp",
		Usage:     "offer a chat to an agent, as tools of the Model Context Protocol",
		ArgsUsage: "CHAT",
		Description: "Speaks MCP on standard input and output, until the input ends: exec, read_file,\n" +
			"write_file, edit_file, append_file, list_dir, terminal_send, terminal_read, explain.\n" +
			"Each is the call of the API of that name, as the user who runs chatd mcp, with the\n" +
			"chat's guard, file rules and walls. Agents start it by themselves:\n\n" +
			"   chatd mcp CHAT\n" +
			"   {\"mcpServers\": {\"chat\": {\"command\": \"chatd\", \"args\": [\"mcp\", \"CHAT\"]}}}",
		Action: serveMCP,
	}
}

func serveMCP(c *cli.Context) error {
	id, err := oneChat(c)
	if err != nil {
		return err
	}
	return mcp.Serve(c.Context, client(c), id, version, c.App.Reader, c.App.Writer)
}
