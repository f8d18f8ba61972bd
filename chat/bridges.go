package chat

import (
	"fmt"
	"slices"
)

// EveryBridge in a profile's Bridges stands for every owner.
const EveryBridge = "*"

// AdmittedBridges are the owners whose bridges may create chats in the profile. Without a list,
// every bridge may use a profile that opens nothing, and no bridge one that opens something. Access
// opened for one bridge's chats is not meant for another's.
func (p Profile) AdmittedBridges() []string {
	switch {
	case p.Bridges != nil:
		return p.Bridges
	case len(p.Opens()) == 0:
		return []string{EveryBridge}
	}
	return []string{}
}

// MayUse reports whether the caller may create chats in the profile. Operators may.
func (p Profile) MayUse(c Caller) bool {
	if c.Role == RoleOperator {
		return true
	}
	bridges := p.AdmittedBridges()
	return c.Role == RoleBridge && c.Name != "" &&
		(slices.Contains(bridges, EveryBridge) || slices.Contains(bridges, c.Name))
}

// Opens names the keys that give the profile's chats more of the host, its kernel or the network
// than an empty profile gives.
func (p Profile) Opens() []string {
	keys := []string{}
	for _, k := range []struct {
		name string
		set  bool
	}{
		{"egress", len(p.Egress) > 0},
		{"egress_may_add", len(p.EgressMayAdd) > 0},
		{"secrets", len(p.Secrets) > 0},
		{"skeleton", p.Skeleton != ""},
		{"expose_paths", len(p.ExposePaths) > 0},
		{"allow_read_paths", len(p.AllowReadPaths) > 0},
		{"allow_write_paths", len(p.AllowWritePaths) > 0},
		{"allow_read_outside_workspace", p.AllowReadOutsideWorkspace},
		{"allow_netlink", p.AllowNetlink},
		{"allow_seccomp", p.AllowSeccomp},
	} {
		if k.set {
			keys = append(keys, k.name)
		}
	}
	return keys
}

// CheckBridges accepts names of owners, and "*" for all. On an error, at is the index of the
// invalid name.
func CheckBridges(names []string) (at int, err error) {
	for i, name := range names {
		if name == EveryBridge {
			continue
		}
		if err := CheckName("owner", name); err != nil {
			return i, fmt.Errorf("%w: want the user name of a bridge, or *", err)
		}
	}
	return 0, nil
}
