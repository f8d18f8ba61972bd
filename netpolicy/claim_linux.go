package netpolicy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// claimTable is an empty nft table. The kernel gives it to one netlink socket (nft(8), flag owner;
// Linux 5.12) in each network namespace, and takes it back when that is closed, by the end of the
// process too. Only CAP_NET_ADMIN can hold it, and no file is left.
const claimTable = "chatd-serve"

// Messages and attributes of <linux/netfilter/nf_tables.h> that golang.org/x/sys lacks.
const (
	tableOwner     = 7 // NFTA_TABLE_OWNER
	tableFlagOwner = 2 // NFT_TABLE_F_OWNER
	netlinkHeader  = unix.NLMSG_HDRLEN
	familyHeader   = 4 // struct nfgenmsg
)

// Claim makes this process the only one that writes packet rules in this network namespace, until
// the file is closed. The error is [chat.ErrBusy], with the other's pid, while there is one. It is
// nil without a file on a kernel that has no nf_tables.
func Claim() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot claim the packet rules: %w", err)
	}
	// Others read the pid from the port. Where it is taken the kernel chooses another.
	own := &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Pid: uint32(os.Getpid())}
	if err = unix.Bind(fd, own); errors.Is(err, unix.EADDRINUSE) {
		err = nil
	}
	if err == nil {
		err = claim(fd)
	}
	if err == nil {
		return os.NewFile(uintptr(fd), "claim"), nil
	}
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil, unix.Close(fd)
	}
	if pid := claimedBy(fd); pid > 0 {
		err = fmt.Errorf("process %d has those of this network namespace: end it, or give this one "+
			"another namespace (ip netns): %w", pid, chat.ErrBusy)
	}
	return nil, errors.Join(fmt.Errorf("cannot claim the packet rules: %w", err), unix.Close(fd))
}

// claim creates the table, for the socket.
func claim(fd int) error {
	flags := binary.BigEndian.AppendUint32(nil, tableFlagOwner)
	table := append(attribute(unix.NFTA_TABLE_NAME, []byte(claimTable+"\x00")),
		attribute(unix.NFTA_TABLE_FLAGS, flags)...)
	batch := message(unix.NFNL_MSG_BATCH_BEGIN, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES, nil)
	batch = append(batch, message(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWTABLE,
		unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK, unix.NFPROTO_INET, 0, table)...)
	batch = append(batch, message(unix.NFNL_MSG_BATCH_END, 0, unix.AF_UNSPEC,
		unix.NFNL_SUBSYS_NFTABLES, nil)...)
	b, err := asked(fd, batch)
	if err != nil {
		return err
	}
	if len(b) < netlinkHeader+4 || binary.NativeEndian.Uint16(b[4:]) != unix.NLMSG_ERROR {
		return fmt.Errorf("cannot read an answer of %d bytes", len(b))
	}
	if errno := -int32(binary.NativeEndian.Uint32(b[netlinkHeader:])); errno != 0 {
		return unix.Errno(errno)
	}
	return nil
}

// claimedBy is the port of the socket that has the table; 0 if none has it.
func claimedBy(fd int) uint32 {
	b, err := asked(fd, message(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETTABLE, 0,
		unix.NFPROTO_INET, 0, attribute(unix.NFTA_TABLE_NAME, []byte(claimTable+"\x00"))))
	if err != nil || len(b) < netlinkHeader+familyHeader ||
		binary.NativeEndian.Uint16(b[4:]) != unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWTABLE {
		return 0
	}
	for b = b[netlinkHeader+familyHeader:]; len(b) >= 4; {
		size := int(binary.NativeEndian.Uint16(b))
		if size < 4 || size > len(b) {
			return 0
		}
		if binary.NativeEndian.Uint16(b[2:]) == tableOwner && size == 8 {
			return binary.BigEndian.Uint32(b[4:])
		}
		b = b[min(len(b), (size+3)&^3):]
	}
	return 0
}

// asked sends messages to the kernel, and returns its first answer.
func asked(fd int, messages []byte) ([]byte, error) {
	kernel := &unix.SockaddrNetlink{Family: unix.AF_NETLINK}
	if err := unix.Sendto(fd, messages, 0, kernel); err != nil {
		return nil, err
	}
	b := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, b, 0)
	return b[:max(n, 0)], err
}

// message is one of nfnetlink: the header of netlink(7), struct nfgenmsg, attributes.
func message(kind, flags, family, resource uint16, attributes []byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(netlinkHeader+familyHeader+len(attributes)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|flags)
	b = append(b, make([]byte, 8)...) // sequence, port
	b = append(b, byte(family), unix.NFNETLINK_V0)
	b = binary.BigEndian.AppendUint16(b, resource)
	return append(b, attributes...)
}

// attribute is one of netlink(7), padded.
func attribute(kind uint16, value []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
	return append(b, make([]byte, (4-len(value)%4)%4)...)
}
