package api

import (
	"errors"
	"syscall"
	"testing"

	"github.com/chatd/chatd/test/expect"
)

// The socket's mode and access list let only the two groups connect.
func TestListenLetsGroupsIn(t *testing.T) {
	needRoot(t)
	opt := peerServerOpt
	opt.Bridges = []uint32{bridgeGID, operatorGID} // start passes these to Listen
	socket, _ := start(t, opt)
	for _, cred := range []*syscall.Credential{bridgeCred, bridge2Cred, operatorCred, bothCred} {
		a := as(t, socket, cred, get("/healthz"))[0]
		expect.True(t, a.Status == 200, "uid %d: %d %s", cred.Uid, a.Status, a.Body)
	}
	if a := tryConnect(t, socket, strangerCred); a == nil || !errors.Is(a, errConnect) {
		t.Errorf("a stranger connects: %v", a)
	}
}
