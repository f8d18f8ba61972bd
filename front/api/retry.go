package api

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/chatd/chatd/internal/quota"
)

// spent adds which share is used up, and when time frees some of it.
func (p *Problem) spent(err error) *Problem {
	var e *quota.SpentError
	if errors.As(err, &e) {
		p.Share, p.retry, p.noRetry = e.Share.Key(), e.Seconds(), e.After == 0
	}
	return p
}

// GetHeaders makes a Problem a huma.HeadersError: Retry-After of a busy answer, unless waiting does
// not help.
func (p *Problem) GetHeaders() http.Header {
	h := http.Header{}
	if p.Status == http.StatusServiceUnavailable && !p.noRetry {
		h.Set("Retry-After", strconv.Itoa(max(1, p.retry)))
	}
	return h
}
