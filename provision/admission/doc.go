// Package admission says who may act on a chat, and what may begin.
//
// [Locks] has one lock for each chat: one caller at a time changes it. [Starts] lets something new
// begin while every wall is in force, and bounds the simultaneous creates and wakes.
//
// # Runs as
//
// root, in chatd-root.
//
// # What it does not stop
//
// What has begun goes on when a wall falls. Locks are this process's: they keep nobody else from a
// chat's files.
package admission
