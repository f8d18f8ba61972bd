// Package netpolicy says where a chat's packets may go.
//
// [Table.Apply] writes two things, always for the whole range of uids that chats
// have, never for one chat:
//
//   - iptables and ip6tables filter rules. One jump at the head of OUTPUT, by the
//     owner match over the uid range, leads to the chain CHATD. There a packet of
//     a flow that the chat itself began finds its policy by blocks of uids (a
//     tree when they are many) and meets that policy's allows; everything
//     else is refused immediately. No rule accepts by connection state, so a changed
//     policy holds for the next packet of an open connection, and a listener of a
//     chat cannot answer the outside.
//   - the nft table inet chatd, which keeps chats apart on loopback and bounds how
//     many connections one uid may open.
//
// [Table.Raise] makes sure that this much stands before there is a daemon, or beside one,
// whose policies it keeps.
//
// A chat reaches its own TCP servers over every spelling of loopback, and what its
// policy names. A policy with a gid opens that only to sockets of the uid and the gid, which
// root makes for it. A uid of the range without a policy reaches only its own servers.
// A new chat on a known profile needs no call of this package.
//
// The cost of a packet does not depend on the number of chats; BenchmarkPacket measures it. Packets
// of other users pay one comparison of uids in each of the two, and on loopback one of the
// connection's mark.
//
// Everything fails closed: a missing nft table leaves loopback refused, a full
// collection of it refuses the next uid, packets that conntrack does not track
// are refused.
//
// # What it does not stop
//
//   - Datagrams from outside, or from users outside the range, to a chat's UDP
//     socket: the chat can receive them, not answer. The host's INPUT rules are the
//     place for that. The same holds for data in a SYN from outside when
//     net.ipv4.tcp_fastopen has the server bit (2); [Table.Probe] reports it.
//   - What a chat has written to a connection and then closed goes out without an
//     owner. It can only follow a connection that was allowed when it was opened.
//   - Names. The rules know addresses: a policy's name opens its ports on every public
//     address, and the process that looks the name up decides which of them it means.
//   - Sockets that root made and handed to a chat: they keep root's uid.
//   - Abstract unix sockets, vsock and packet sockets: they never meet netfilter.
//   - Extra paths of Multipath TCP (net.mptcp): the kernel opens them with sockets
//     that have no owner. They carry only what belongs to an allowed connection.
//   - Many chats of one person together: the bounds on connections are per uid.
//   - A service of the host that a policy opens on loopback and that is not running:
//     another chat may bind an unprivileged port there. Its answers are refused, but
//     it receives what is sent by UDP.
//   - Timing and counters that all users of one network namespace can read.
//   - While net.ipv4.tcp_syncookies is 2, or a listener's queue overflows, a chat's
//     own servers are refused too.
package netpolicy
