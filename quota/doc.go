// Package quota says how much one owner may have of what all owners share: chats, new chats
// a minute, awake chats, streams, bytes in the run directory, and uids.
//
// [Limits] are the shares. Whoever counts something asks [Limits.Check] before it grows, and
// a refusal is a [Spent], which names the share and what frees it. What nobody else counts is
// counted here: by [Counter] what is held and given back, by [Rate] what happens in a minute.
//
// # What it does not stop
//
// Several owners together can use up what there is: shares may add up to more than the host
// has. Operators are bound by no share; what they make for an owner counts as that owner's.
package quota
