package orders

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/sys"
)

// The two fanotify(7) groups of an enforcer are lent to chatd, which holds them open, and taken
// over from there by the next enforcer of the directory. Both use the same message.

// GroupsSocket is the name of the socket at which chatd gives the groups to the next enforcer.
const GroupsSocket = "groups"

// GroupsTimeout bounds an exchange of the groups.
const GroupsTimeout = 5 * time.Second

// LentGroups are the groups of an enforcer of the directory that ended; nil if nobody holds any.
func LentGroups(dir string) ([]int, error) {
	socket := filepath.Join(dir, GroupsSocket)
	conn, err := (&net.Dialer{Timeout: GroupsTimeout}).DialContext(context.Background(), "unix", socket)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot ask for the enforcer's groups: %w", err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(GroupsTimeout)); err != nil {
		return nil, fmt.Errorf("cannot ask for the enforcer's groups: %w", err)
	}
	return ReceiveGroups(conn.(*net.UnixConn))
}

// SendGroups sends the groups, or the answer that there are none, as one message.
func SendGroups(conn *net.UnixConn, fds ...int) error {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	if err := conn.SetDeadline(time.Now().Add(GroupsTimeout)); err != nil {
		return err
	}
	_, _, err := conn.WriteMsgUnix([]byte("{}\n"), oob, nil)
	return err
}

// ReceiveGroups reads what SendGroups sent, or the error of an enforcer that knows no such order.
func ReceiveGroups(conn *net.UnixConn) ([]int, error) {
	b, oob := make([]byte, MaxAnswer), make([]byte, unix.CmsgSpace(4*4))
	n, oobn, _, _, err := conn.ReadMsgUnix(b, oob)
	if err != nil {
		return nil, fmt.Errorf("cannot receive the enforcer's groups: %w", err)
	}
	var a Answer
	fds, err := sys.Rights(oob[:oobn])
	switch jsonErr := json.NewDecoder(bytes.NewReader(b[:n])).Decode(&a); {
	case jsonErr != nil:
		err = errors.Join(err, jsonErr)
	case a.Error != "":
		err = errors.Join(err, errors.New(a.Error))
	case err == nil && len(fds) != 0 && len(fds) != 2:
		err = fmt.Errorf("%d descriptors came, want 2", len(fds))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot receive the enforcer's groups: %w", err),
			sys.CloseAll(fds))
	}
	return fds, nil
}
