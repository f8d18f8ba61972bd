package chat

import "context"

// Role is the set of calls open to a caller. [Caller.MayReach] limits them to chats by owner.
type Role string

const (
	// RoleOperator may do everything to every chat.
	RoleOperator Role = "operator"
	// RoleBridge may do what a bridge needs, to its own chats.
	RoleBridge Role = "bridge"
)

// Caller is the peer of a unix socket, identified by its credentials.
type Caller struct {
	// Name is the peer's user name, and the owner of the chats that the peer creates.
	Name string `json:"name"`
	UID  uint32 `json:"uid"`
	Role Role   `json:"role"`
}

// MayReach reports whether the caller may see and touch a chat of owner.
func (c Caller) MayReach(owner string) bool {
	return c.Role == RoleOperator || c.Role == RoleBridge && c.Name != "" && c.Name == owner
}

type callerKey struct{}

// WithCaller returns a context that carries the caller.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerFrom returns the caller of a context. Without one it is the zero Caller, which may do
// nothing.
func CallerFrom(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}
