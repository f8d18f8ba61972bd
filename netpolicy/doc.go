// Package netpolicy says where a chat's packets may go.
//
// [Table.Apply] writes iptables and ip6tables filter rules, always for the whole range of uids that
// chats have, never for one chat. One jump at the head of OUTPUT, by the owner match over the uid
// range, leads to the chain CHATD. There a packet of a flow that the uid itself began finds its
// policy by blocks of uids (a tree when they are many) and meets that policy's allows; everything
// else is refused immediately. No rule accepts by connection state, so a changed policy holds for the
// next packet of an open connection, and a listener of the uid cannot answer the outside.
//
// Sessions have networks of their own, which send nothing here. What these rules see are the sockets
// that root makes for the process that carries the chats' connections: a policy's gid names that
// process. And they refuse whatever else runs as a chat's uid, on loopback too, whoever started it.
//
// [Table.Raise] makes sure that the wall stands before there is a daemon, or beside one,
// whose policies it keeps. A new chat on a known profile needs no call of this package.
//
// The cost of a packet does not depend on the number of chats; BenchmarkPacket measures it. Packets
// of other users pay one comparison of uids.
//
// Everything fails closed: a uid without a policy is refused, packets that conntrack does not track
// are refused.
//
// # Runs as
//
// root, in chatd-root, and in chatd wall at boot.
//
// # What it does not stop
//
//   - Packets that only arrive: those to a socket of a chat's uid in the host's network, which only a
//     process outside its session has.
//   - What was written to a connection and then closed goes out without an owner. It can only follow
//     a connection that was allowed when it was opened.
//   - Names. The rules know addresses: a policy's name opens its ports on every public
//     address, and the process that looks the name up decides which of them it means.
//   - Sockets that root made and handed to a chat: they keep root's uid.
//   - Abstract unix sockets, vsock and packet sockets: they never meet netfilter.
//   - Extra paths of Multipath TCP (net.mptcp): the kernel opens them with sockets
//     that have no owner. They carry only what belongs to an allowed connection.
//   - A chat that has refused packets logged, so that those of others find no room in the bound of
//     lines.
package netpolicy
