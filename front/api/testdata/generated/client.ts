// A client that openapi-typescript made the types of: create → run → files → reap. It is compiled by strict tsc.
import createClient from "openapi-fetch";
import type { paths } from "./schema.js";

function must<T>(what: string, answer: { data?: T; error?: unknown; response: Response }, status: number): T {
  if (answer.error !== undefined || answer.response.status !== status)
    throw new Error(`${what}: ${answer.response.status}, want ${status}: ${JSON.stringify(answer.error)}`);
  return answer.data as T;
}

function same(what: string, got: unknown, want: unknown): void {
  if (got !== want) throw new Error(`${what}: ${JSON.stringify(got)}, want ${JSON.stringify(want)}`);
}

const baseUrl = process.argv[2];
if (baseUrl === undefined) throw new Error("want a URL");
const chatd = createClient<paths>({ baseUrl });

const made = must("create", await chatd.POST("/v1/chats", { body: { external_id: "generated", labels: { by: "tsc" } } }), 201);
const found = must("create again", await chatd.POST("/v1/chats", { body: { external_id: "generated", labels: { by: "hand" } } }), 200);
same("the same chat", found.id, made.id);
same("ignored", found.ignored?.[0], "labels.by");
const path = { id: made.id };

const run = must("run", await chatd.POST("/v1/chats/{id}/runs", { params: { path }, body: { command: "echo hello" } }), 200);
if (typeof run === "string" || "background" in run) throw new Error("a run without its output");
same("stdout", run.stdout, "hello\n");

const fresh = must("write_file", await chatd.POST("/v1/chats/{id}/files/write_file", { params: { path }, body: { path: "a", content: "one" } }), 201);
same("created", fresh.created, true);
must("write_file again", await chatd.POST("/v1/chats/{id}/files/write_file", { params: { path }, body: { path: "a", content: "two" } }), 200);
const read = must("read_file", await chatd.POST("/v1/chats/{id}/files/read_file", { params: { path }, body: { path: "a" } }), 200);
same("content", read.content, "two");
const bytes = must("content", await chatd.GET("/v1/chats/{id}/files/content", { params: { path, query: { path: "a" } }, parseAs: "text" }), 200);
same("bytes", bytes, "two");

const typed = must("input", await chatd.POST("/v1/chats/{id}/input", { params: { path }, body: { text: "ls", enter: true, wait: { until: "prompt" } } }), 200);
same("until", typed?.until, "prompt");
must("input alone", await chatd.POST("/v1/chats/{id}/input", { params: { path }, body: { text: "ls" } }), 204);

const labelled = must("patch", await chatd.PATCH("/v1/chats/{id}", { params: { path }, body: { labels: { by: null, x: "y" } } }), 200);
same("labels", JSON.stringify(labelled.labels), '{"x":"y"}');

const refused = await chatd.POST("/v1/chats/{id}/files/read_file", { params: { path }, body: { path: "nothing" } });
same("kind", refused.error?.kind, "not_found");

must("reap", await chatd.DELETE("/v1/chats/{id}", { params: { path } }), 204);
const gone = await chatd.GET("/v1/chats/{id}", { params: { path } });
same("kind", gone.error?.kind, "not_found");
console.log("create, run, files, reap");
