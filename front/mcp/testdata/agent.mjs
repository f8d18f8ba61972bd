// An agent that uses the TypeScript SDK's client. Its arguments: "http" and a URL, or "stdio" and a
// command line; then how long a call may be silent, and how long "long" is, in milliseconds.
import assert from "node:assert/strict";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [over, silent, ...where] = process.argv.slice(2);
const transport = over === "http"
  ? new StreamableHTTPClientTransport(new URL(where[0]))
  : new StdioClientTransport({ command: where[0], args: where.slice(1), env: process.env });
const client = new Client({ name: "agent", version: "1" });
await client.connect(transport);

// The client holds each answer against the outputSchema of its tool from here on.
const { tools } = await client.listTools();
for (const t of tools) {
  assert.ok(t.title && t.description && t.outputSchema?.type === "object", t.name);
  for (const hint of ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"])
    assert.equal(typeof t.annotations[hint], "boolean", `${t.name} ${hint}`);
}
const send = tools.find((t) => t.name === "terminal_send").inputSchema;
assert.ok(send.properties.wait.properties.until.enum.includes("prompt"), "enum of wait.until");

const used = new Set();
async function call(name, args, options) {
  used.add(name);
  const r = await client.callTool({ name, arguments: args }, undefined, options);
  assert.ok(!r.isError, `${name}: ${JSON.stringify(r)}`);
  assert.ok(r.content[0].text !== undefined && r.structuredContent, name);
  return r.structuredContent;
}
async function refused(name, args, want) {
  const r = await client.callTool({ name, arguments: args });
  assert.ok(r.isError && r.content[0].text.startsWith(want) && r.structuredContent === undefined, JSON.stringify(r));
}

assert.equal((await call("exec", { command: "echo hello" })).stdout, "hello\n");
assert.equal((await call("exec", { command: "false" })).exit, 1);
assert.equal((await call("write_file", { path: "a", content: "one" })).created, true);
await call("append_file", { path: "a", content: " two" });
assert.equal((await call("edit_file", { path: "a", old_text: "two", new_text: "2" })).diff, "-two\n+2\n");
assert.equal((await call("read_file", { path: "a" })).content, "one 2");
assert.match((await call("list_dir", {})).content, /FILE: a/);
assert.equal((await call("terminal_send", { text: "ls", enter: true, wait: { until: "prompt" } })).until, "prompt");
assert.equal((await call("terminal_read", {})).rows, 24);
assert.equal((await call("terminal_read", { since: 0 })).text, "ls");
assert.equal((await call("explain", { path: "x", op: "read" })).verdict, "allow");
await refused("read_file", { path: "nothing" }, "not_found: ");
await refused("exec", {}, "invalid: ");

// A call that is longer than the client waits for a word.
let heard = 0;
const long = await call("exec", { command: "long" }, { timeout: Number(silent), resetTimeoutOnProgress: true, onprogress: () => heard++ });
assert.equal(long.stdout, "at last");
assert.ok(heard > 1, `${heard} progress notifications`);

// A call that is cancelled while it goes on.
const stop = new AbortController();
await assert.rejects(call("exec", { command: "hang" }, { signal: stop.signal, onprogress: () => stop.abort("enough") }));

// The same without progress, where the answer is no stream.
const stopToo = new AbortController();
setTimeout(() => stopToo.abort("enough"), 500);
await assert.rejects(call("exec", { command: "hang" }, { signal: stopToo.signal }));

const { id } = await call("run_start", { argv: ["wait"], open_stdin: true });
assert.equal((await call("run_poll", { run: id })).state, "running");
await call("run_stdin", { run: id, text: "one\n", close: true });
const over_ = await call("run_poll", { run: id, wait: "30s" });
assert.equal(over_.stdout, "one\n");
assert.equal((await call("run_poll", { run: id, cursor: over_.cursor })).result.exit, 0);
const second = await call("run_start", { command: "wait" });
await call("run_end", { run: second.id });

assert.deepEqual([...used].sort(), tools.map((t) => t.name).sort());
await client.close();
console.log("used every tool");
