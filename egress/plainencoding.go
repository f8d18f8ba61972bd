package egress

import (
	"errors"
	"mime"
	"net/http"
	"slices"
	"strings"
)

// wantLegible asks the server for an answer in which a value could be seen: nothing coded but by
// gzip, which http.Transport asks for itself and decodes, and in a charset that has ASCII as it is.
// The extensions of WebSocket change frames.
func wantLegible(h http.Header) {
	gzip := strings.Contains(strings.Join(h.Values("Accept-Encoding"), ","), "gzip")
	for _, name := range []string{
		"Accept-Charset", "A-Im", "Accept-Encoding", "Sec-Websocket-Extensions",
		"Grpc-Accept-Encoding", "Grpc-Encoding", "Connect-Accept-Encoding",
		"Connect-Content-Encoding",
	} {
		h.Del(name)
	}
	if !gzip {
		h.Set("Accept-Encoding", "identity")
	}
}

var (
	errCoding  = errors.New("the server's answer has a coding that was not asked for")
	errCharset = errors.New("the server's answer has a charset in which a value is not seen")
	errPart    = errors.New("the server's answer is a part that was not asked for")
)

// legible refuses an answer in which a value could not be seen.
func legible(a *http.Response) error {
	for _, name := range []string{
		"Content-Encoding", "Grpc-Encoding", "Connect-Content-Encoding",
	} {
		for _, coding := range a.Header.Values(name) {
			if coding != "" && !strings.EqualFold(coding, "identity") &&
				a.Request.Method != http.MethodHead {
				return errCoding
			}
		}
	}
	for _, kind := range a.Header.Values("Content-Type") {
		if !hasASCII(kind) {
			return errCharset
		}
	}
	return nil
}

// hasASCII reports whether texts of a media type have the characters of ASCII as these bytes. One
// that says nothing of a charset does.
func hasASCII(kind string) bool {
	_, parameters, err := mime.ParseMediaType(kind)
	if err != nil {
		return !strings.Contains(strings.ToLower(kind), "charset")
	}
	charset := strings.ToLower(parameters["charset"])
	known := func(prefix string) bool { return strings.HasPrefix(charset, prefix) }
	return charset == "" || charset == "utf-8" || charset == "utf8" || charset == "us-ascii" ||
		slices.ContainsFunc([]string{"iso-8859-", "windows-125"}, known)
}
