package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"

	"github.com/chatd/chatd/client"
)

// Write passes on what a handler answers, untouched. Bytes that net/http writes while no handler
// runs are its own page for a request that it cannot read; the page becomes a problem. Time alone
// tells the two apart, never the bytes: a chat may choose those of an answer.
func (c *conn) Write(b []byte) (int, error) {
	switch {
	case c.answering:
		return c.Conn.Write(b)
	case c.refused: // the rest of a page whose problem is sent
		return len(b), nil
	}
	c.refused = true
	return len(b), c.refuse(b)
}

// refuse answers with a problem in place of net/http's page, after which net/http closes.
func (c *conn) refuse(page []byte) error {
	head, text, _ := bytes.Cut(page, []byte("\r\n\r\n"))
	status := pageStatus(head)
	// Status 501 is for a transfer encoding that HTTP/1.1 does not know.
	p := client.NewProblem(client.KindNamed("invalid"), status,
		"cannot read the request: "+cmp.Or(string(text), http.StatusText(status)))
	body, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("cannot write a problem: %w", err)
	}
	_, err = fmt.Fprintf(c.Conn,
		"HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		status, http.StatusText(status), client.ProblemType, len(body), body)
	return err
}

// pageStatus reads the status of a head that begins with HTTP/1.1, or else takes 400.
func pageStatus(head []byte) int {
	text, ok := bytes.CutPrefix(head, []byte("HTTP/1.1 "))
	if !ok || len(text) < 3 {
		return http.StatusBadRequest
	}
	status, err := strconv.Atoi(string(text[:3]))
	if err != nil || http.StatusText(status) == "" {
		return http.StatusBadRequest
	}
	return status
}

// turn follows a connection (http.Server.ConnState): it is idle once an answer is sent to
// its last byte and no handler runs any more.
func turn(c net.Conn, state http.ConnState) {
	if c, ok := c.(*conn); ok && state == http.StateIdle {
		c.answering = false
	}
}
