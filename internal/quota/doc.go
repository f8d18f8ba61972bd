// Package quota bounds one owner's share of common resources: chats, new chats a minute,
// awake chats, streams, bytes in the run directory, and uids.
//
// [Limits] are the shares. A caller that counts a resource calls [Limits.Check] before it
// grows; a refusal is a [SpentError], which names the share and how to free some. This package
// counts the rest: [Counter] resources that are held and given back, [Rate] acts in a minute.
// [Limiter] bounds the simultaneous acts of all owners, and lets them take turns.
//
// # What it does not stop
//
// Several owners together can exhaust a resource: shares may add up to more than the host
// has. No share binds operators; a chat that they create for an owner counts for that owner.
package quota
