package api

import (
	"strings"
	"testing"

	"github.com/chatd/chatd/test/expect"
)

const (
	hostileID = "/v1/chats/" + someID
	// hostileArchive lacks the month and the rest.
	hostileArchive = "/v1/archives/" + someID + "-2026"
)

// hostileRequests are sent as they are; each must get a problem of its kind.
var hostileRequests = []struct {
	name, request string
	status        int
	kind          string
}{
	{"10 MB body", post("/v1/chats", `{"external_id":"`+strings.Repeat("a", 10<<20)+`"}`), 413, "invalid"},
	{"10 MB chunked", "POST /v1/chats HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\na00000\r\n" + strings.Repeat(" ", 10<<20) + "\r\n0\r\n\r\n", 413, "invalid"},
	{"a length that lies upwards is refused unread", "POST /v1/chats HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n", 413, "invalid"},
	{"100,000 deep arrays", post("/v1/chats", strings.Repeat("[", 100000)), 400, "invalid"},
	{"100,000 deep objects", post("/v1/chats", strings.Repeat(`{"a":`, 100000)), 400, "invalid"},
	{"wrong type", post("/v1/chats", `{"external_id":7}`), 400, "invalid"},
	{"array", post("/v1/chats", `[{"external_id":"a"}]`), 400, "invalid"},
	{"null", post("/v1/chats", `null`), 400, "invalid"},
	{"string", post("/v1/chats", `"a"`), 400, "invalid"},
	{"no body", post("/v1/chats", ``), 400, "invalid"},
	{"only space", post("/v1/chats", ` `), 400, "invalid"},
	{"empty object", post("/v1/chats", `{}`), 400, "invalid"},
	{"unknown field", post("/v1/chats", `{"external_id":"a","root":true}`), 400, "invalid"},
	{"field in other case", post("/v1/chats", `{"EXTERNAL_ID":"a"}`), 400, "invalid"},
	{"field in both cases", post("/v1/chats", `{"external_id":"a","External_ID":"b"}`), 400, "invalid"},
	{"key twice", post("/v1/chats", `{"external_id":"a","external_id":"b"}`), 400, "invalid"},
	{"key twice, one escaped", post("/v1/chats", `{"external_id":"a","external\u005fid":"b"}`), 400, "invalid"},
	{"label twice", post("/v1/chats", `{"external_id":"a","labels":{"k":"1","k":"2"}}`), 400, "invalid"},
	{"two values", post("/v1/chats", `{"external_id":"a"}{"external_id":"b"}`), 400, "invalid"},
	{"trailing comma", post("/v1/chats", `{"external_id":"a",}`), 400, "invalid"},
	{"raw NUL", post("/v1/chats", "{\"external_id\":\"a\x00b\"}"), 400, "invalid"},
	{"escaped NUL", post("/v1/chats", `{"external_id":"a\u0000b"}`), 400, "invalid"},
	{"invalid UTF-8", post("/v1/chats", "{\"external_id\":\"a\xff\"}"), 400, "invalid"},
	{"half a surrogate pair", post("/v1/chats", `{"external_id":"\ud800"}`), 400, "invalid"},
	{"surrogates the wrong way round", post("/v1/chats", `{"external_id":"\udc00\ud800"}`), 400, "invalid"},
	{"empty external id", post("/v1/chats", `{"external_id":""}`), 400, "invalid"},
	{"10,000 characters", post("/v1/chats", `{"external_id":"`+strings.Repeat("x", 10000)+`"}`), 400, "invalid"},
	{"513 bytes in 171 characters", post("/v1/chats", `{"external_id":"`+strings.Repeat("한", 171)+`"}`), 400, "invalid"},
	{"profile as path", post("/v1/chats", `{"external_id":"a","profile":"../../etc"}`), 400, "invalid"},
	{"agent as option", post("/v1/chats", `{"external_id":"a","agent":"-rf"}`), 400, "invalid"},
	{"label name as option", post("/v1/chats", `{"external_id":"a","labels":{"-rf":"x"}}`), 400, "invalid"},
	{"form", "POST /v1/chats HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 19\r\n\r\n{\"external_id\":\"a\"}", 415, "invalid"},
	{"no content type", "POST /v1/chats HTTP/1.1\r\nHost: x\r\nContent-Length: 19\r\n\r\n{\"external_id\":\"a\"}", 415, "invalid"},
	{"latin-1", "POST /v1/chats HTTP/1.1\r\nHost: x\r\nContent-Type: application/json; charset=latin-1\r\nContent-Length: 19\r\n\r\n{\"external_id\":\"a\"}", 415, "invalid"},
	{"body where none belongs", post(hostileID+"/wake", `{"x":1}`), 400, "invalid"},
	{"file of an unknown chat", post(hostileID+"/files/read_file", `{"path":"a"}`), 404, "not_found"},
	{"content of an unknown chat", get(hostileID + "/files/content?path=a"), 404, "not_found"},
	{"content for an unknown chat", put(hostileID+"/files/content?path=a", "x"), 404, "not_found"},
	{"no such tool", post(hostileID+"/files/exec", `{"path":"a"}`), 404, "not_found"},
	{"path with NUL", post(hostileID+"/files/read_file", `{"path":"a\u0000b"}`), 400, "invalid"},
	{"path of 5,000 bytes", post(hostileID+"/files/write_file", `{"path":"`+strings.Repeat("a", 5000)+`","content":""}`), 400, "invalid"},
	{"path of another type", post(hostileID+"/files/list_dir", `{"path":["a"]}`), 400, "invalid"},
	{"a number for content", post(hostileID+"/files/write_file", `{"path":"a","content":7}`), 400, "invalid"},
	{"no content", post(hostileID+"/files/write_file", `{"path":"a"}`), 400, "invalid"},
	{"a mode", post(hostileID+"/files/write_file", `{"path":"a","content":"x","mode":511}`), 400, "invalid"},
	{"2 MiB of content", post(hostileID+"/files/append_file", `{"path":"a","content":"`+strings.Repeat("x", 2<<20)+`"}`), 413, "invalid"},
	{"1 MiB and a byte of content", post(hostileID+"/files/append_file", `{"path":"a","content":"`+strings.Repeat("x", 1<<20+1)+`"}`), 400, "invalid"},
	{"a stream in JSON", post(hostileID+"/files/write_file", `{"path":"a","stream":true}`), 400, "invalid"},
	{"a stream from JSON", post(hostileID+"/files/read_file", `{"path":"a","stream":true}`), 400, "invalid"},
	{"a negative offset", post(hostileID+"/files/read_file", `{"path":"a","offset":-1}`), 400, "invalid"},
	{"bytes and lines", post(hostileID+"/files/read_file", `{"path":"a","offset":1,"line":1}`), 400, "invalid"},
	{"nothing to replace", post(hostileID+"/files/edit_file", `{"path":"a","old_text":"","new_text":"x"}`), 400, "invalid"},
	{"content without path", get(hostileID + "/files/content"), 400, "invalid"},
	{"content of an empty path", get(hostileID + "/files/content?path="), 400, "invalid"},
	{"content of two paths", get(hostileID + "/files/content?path=a&path=b"), 400, "invalid"},
	{"content with NUL", get(hostileID + "/files/content?path=a%00"), 400, "invalid"},
	{"content, not UTF-8", get(hostileID + "/files/content?path=%ff"), 400, "invalid"},
	{"content from a word", get(hostileID + "/files/content?path=a&offset=x"), 400, "invalid"},
	{"content from before", get(hostileID + "/files/content?path=a&offset=-1"), 400, "invalid"},
	{"content from beyond", get(hostileID + "/files/content?path=a&offset=9223372036854775807"), 400, "invalid"},
	{"content with an unknown parameter", get(hostileID + "/files/content?path=a&mode=7"), 400, "invalid"},
	{"append on a read", get(hostileID + "/files/content?path=a&append=true"), 400, "invalid"},
	{"append maybe", put(hostileID+"/files/content?path=a&append=maybe", "x"), 400, "invalid"},
	{"offset on a write", put(hostileID+"/files/content?path=a&offset=1", "x"), 400, "invalid"},
	{"a form as a file", "PUT " + hostileID + "/files/content?path=a HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 3\r\n\r\na=b", 415, "invalid"},
	{"a packed file", "PUT " + hostileID + "/files/content?path=a HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\na=b", 415, "invalid"},
	{"2 GiB announced", "PUT " + hostileID + "/files/content?path=a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2147483649\r\n\r\n", 413, "invalid"},
	{"explain nothing", post(hostileID+"/explain", `{}`), 400, "invalid"},
	{"explain both", post(hostileID+"/explain", `{"path":"a","op":"read","command":"ls"}`), 400, "invalid"},
	{"explain path and host", explaining(`"command":"a","host":"b","port":1`), 400, "invalid"},
	{"explain no port", explaining(`"host":"b"`), 400, "invalid"},
	{"explain a high port", explaining(`"host":"b","port":70000`), 400, "invalid"},
	{"explain a negative port", explaining(`"host":"b","port":-1`), 400, "invalid"},
	{"explain a host that is none", explaining(`"host":"a\u0000.b","port":1`), 400, "invalid"},
	{"explain a long host", explaining(`"port":1,"host":"` + strings.Repeat("x", 300) + `"`), 400,
		"invalid"},
	{"explain another op", post(hostileID+"/explain", `{"path":"a","op":"exec"}`), 400, "invalid"},
	{"explain no op", post(hostileID+"/explain", `{"path":"a"}`), 400, "invalid"},
	{"explain a huge command", post(hostileID+"/explain", `{"command":"`+strings.Repeat("x", 70000)+`"}`), 400, "invalid"},
	{"share to nobody", post(hostileID+"/share", `{"path":"a"}`), 400, "invalid"},
	{"share to a prefix", post(hostileID+"/share", `{"path":"a","to":"0123"}`), 400, "invalid"},
	{"share an absolute path as nothing", post(hostileID+"/share", `{"path":"/a","to":"`+someID+`"}`), 400, "invalid"},
	{"archive without a body", bare("POST", hostileID+"/archive"), 415, "invalid"},
	{"archive where", post(hostileID+"/archive", `{"dir":"/etc"}`), 400, "invalid"},
	{"archive, keep a word", post(hostileID+"/archive", `{"keep":"no"}`), 400, "invalid"},
	{"archive of an unknown chat", post(hostileID+"/archive", `{}`), 404, "not_found"},
	{"reap, archive maybe", bare("DELETE", hostileID+"?archive=1"), 400, "invalid"},
	{"reap, archive empty", bare("DELETE", hostileID+"?archive="), 400, "invalid"},
	{"reap, archive bare", bare("DELETE", hostileID+"?archive"), 400, "invalid"},
	{"reap, archive twice", bare("DELETE", hostileID+"?archive=true&archive=false"), 400, "invalid"},
	{"reap, another case", bare("DELETE", hostileID+"?Archive=true"), 400, "invalid"},
	{"reap with a body", strings.Replace(post(hostileID, `{"archive":true}`), "POST", "DELETE", 1),
		400, "invalid"},
	{"archives of a prefix", get("/v1/archives?chat=0123"), 400, "invalid"},
	{"archives of a path", get("/v1/archives?chat=../../etc/passwd"), 400, "invalid"},
	{"archives of a long owner", get("/v1/archives?owner=" + strings.Repeat("a", 65)), 400,
		"invalid"},
	{"archives by label", get("/v1/archives?label=a"), 400, "invalid"},
	{"archive of no chat", bare("DELETE", "/v1/archives/20261125T160000Z"), 400, "invalid"},
	{"archive of no time", bare("DELETE", "/v1/archives/"+someID), 400, "invalid"},
	{"archive of another month", bare("POST", hostileArchive+"1325T160000Z/verify"), 400, "invalid"},
	{"archive with an end", bare("POST", hostileArchive+"1125T160000Z.tar/verify"), 400, "invalid"},
	{"archive of dots", bare("DELETE", "/v1/archives/.."), 404, "not_found"},
	{"archive of encoded dots", bare("DELETE", "/v1/archives/%2e%2e%2fchatd.db"), 404, "not_found"},
	{"huge archive", bare("DELETE", "/v1/archives/"+strings.Repeat("a", 10000)), 400, "invalid"},
	{"archive that is not there", bare("DELETE", hostileArchive+"1125T160000Z"), 404, "not_found"},
	{"unknown chat", get(hostileID), 404, "not_found"},
	{"upper-case id", get("/v1/chats/0123456789ABCDEF"), 400, "invalid"},
	{"prefix of an id", get("/v1/chats/0123"), 400, "invalid"},
	{"id -rf", get("/v1/chats/-rf"), 400, "invalid"},
	{"10,000 character id", get("/v1/chats/" + strings.Repeat("a", 10000)), 400, "invalid"},
	{"encoded dots", get("/v1/chats/%2e%2e/%2e%2e/etc"), 404, "not_found"},
	{"dots", get("/v1/chats/../host"), 404, "not_found"},
	{"dot", get("/v1/./host"), 404, "not_found"},
	{"double slash", get("/v1//host"), 404, "not_found"},
	{"two slashes in front", get("//v1/host"), 404, "not_found"},
	{"trailing slash", get("/v1/host/"), 404, "not_found"},
	{"encoded slash", get("/v1/chats/a%2fb"), 404, "not_found"},
	{"encoded NUL", get("/v1/chats/%00"), 404, "not_found"},
	{"encoded letter", get("/v1/hos%74"), 404, "not_found"},
	{"backslash", get("/v1\\host"), 404, "not_found"},
	{"root", get("/"), 404, "not_found"},
	{"no such path", get("/v2/chats"), 404, "not_found"},
	{"asterisk", "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 404, "not_found"},
	{"method", "PUT /v1/chats HTTP/1.1\r\nHost: x\r\n\r\n", 405, "invalid"},
	{"options", "OPTIONS /v1/chats HTTP/1.1\r\nHost: x\r\n\r\n", 405, "invalid"},
	{"trace", "TRACE /v1/host HTTP/1.1\r\nHost: x\r\n\r\n", 405, "invalid"},
	{"method of nobody", "SPAWN /v1/chats HTTP/1.1\r\nHost: x\r\n\r\n", 405, "invalid"},
	{"connect", "CONNECT /v1/chats HTTP/1.1\r\nHost: x\r\n\r\n", 405, "invalid"},
	{"unknown query", get("/v1/chats?sort=id"), 400, "invalid"},
	{"query twice", get("/v1/chats?limit=1&limit=2"), 400, "invalid"},
	{"limit 0", get("/v1/chats?limit=0"), 400, "invalid"},
	{"limit below 0", get("/v1/chats?limit=-1"), 400, "invalid"},
	{"limit above", get("/v1/chats?limit=99999999999999999999"), 400, "invalid"},
	{"awake maybe", get("/v1/chats?awake=maybe"), 400, "invalid"},
	{"query NUL", get("/v1/chats?label=%00"), 400, "invalid"},
	{"query invalid UTF-8", get("/v1/chats?label=%ff"), 400, "invalid"},
	{"query half escape", get("/v1/chats?label=%f"), 400, "invalid"},
	{"run without command", post(hostileID+"/runs", `{}`), 400, "invalid"},
	{"run with both", post(hostileID+"/runs", `{"command":"a","argv":["a"]}`), 400, "invalid"},
	{"timeout as number", post(hostileID+"/runs", `{"command":"a","timeout":60}`), 400, "invalid"},
	{"timeout as words", post(hostileID+"/runs", `{"command":"a","timeout":"soon"}`), 400, "invalid"},
	{"timeout below 0", post(hostileID+"/runs", `{"command":"a","timeout":"-1s"}`), 400, "invalid"},
	{"argv of numbers", post(hostileID+"/runs", `{"argv":[1]}`), 400, "invalid"},
	{"argv null", post(hostileID+"/runs", `{"argv":[null]}`), 400, "invalid"},
	{"env name with =", post(hostileID+"/runs", `{"command":"a","env":{"A=B":"c"}}`), 400, "invalid"},
	{"input of nothing", post(hostileID+"/input", `{}`), 400, "invalid"},
	{"input of both", post(hostileID+"/input", `{"text":"a","keys":["C-c"]}`), 400, "invalid"},
	{"not HTTP", "hello\r\n\r\n", 400, "invalid"},
	{"no host", "GET /healthz HTTP/1.1\r\n\r\n", 400, "invalid"},
	{"space in the path", "GET /v1/ho st HTTP/1.1\r\nHost: x\r\n\r\n", 400, "invalid"},
	{"header of 1 MB", "GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("a", 1<<20) + "\r\n\r\n", 431, "invalid"},
	{"10,000 headers", "GET /healthz HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X: a\r\n", 10000) + "\r\n", 431, "invalid"},
	{"odd transfer encoding", "POST /v1/chats HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501, "invalid"},
	{"two lengths", "POST /v1/chats HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}", 400, "invalid"},
	{"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 404, "not_found"},
}

func TestHostileRequests(t *testing.T) {
	socket, _ := start(t, ServerOptions{MaxBody: 2 << 20})
	for _, tt := range hostileRequests {
		t.Run(tt.name, func(t *testing.T) {
			g := raw(t, socket, tt.request)
			expect.True(t, g.status == tt.status && g.problem.Kind == tt.kind,
				"got %d %s, want %d %s: %.300s", g.status, g.problem.Kind, tt.status, tt.kind, g.body)
			expect.True(t, len(g.body) <= 4096, "the answer has %d bytes", len(g.body))
		})
	}
}

// explaining asks explain about something, which has these fields.
func explaining(fields string) string { return post(hostileID+"/explain", "{"+fields+"}") }

// bare is a request without a body.
func bare(method, path string) string {
	return method + " " + path + " HTTP/1.1\r\nHost: x\r\n\r\n"
}
