package provision

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
)

// A session keeps until it ends its view, its variables, and what each process inherits. Its fingerprint
// says what that was. What differs from what its chat has by now is pending until the chat wakes again;
// other changes hold immediately, and limits that the kernel refuses are tried again. What somebody
// changed in a session behind chatd's back is not seen: chatd compares what it recorded.

// fingerprint is a digest of each thing that a session of the chat would have from start to end, by its
// key.
func (mt *mounts) fingerprint(c subject) map[string]string {
	p, env := c.profile, map[string]string{}
	maps.Copy(env, p.Env)
	maps.Copy(env, c.Env)
	all := map[string]string{}
	for key, v := range map[string]any{
		"env": env, "secrets": mt.secrets.vars(c), "network": p.EffectiveNetwork(),
		"commands": p.Commands, "expose_paths": p.ExposePaths, "allow_read_paths": p.AllowReadPaths,
		"allow_write_paths": p.AllowWritePaths, "allow_netlink": p.AllowNetlink,
		"allow_seccomp": p.AllowSeccomp, "limits.shm_size": p.Limits.ShmSize,
		"limits.nofile": p.Limits.NoFile, "limits.fsize": p.Limits.FSize,
	} {
		text, err := json.Marshal(v)
		if err != nil {
			text = []byte(err.Error())
		}
		if string(text) == "[]" {
			text = []byte("null")
		}
		all[key] = fmt.Sprintf("%x", sha256.Sum256(text))[:16]
	}
	return all
}

// unequal are the keys of now whose values another fingerprint has otherwise.
func unequal(now, other map[string]string) (keys []string) {
	for key, is := range now {
		if other[key] != is {
			keys = append(keys, key)
		}
	}
	return keys
}

// ofLimits are keys of limits as they are shown.
func ofLimits(keys []string) (all []string) {
	for _, key := range keys {
		all = append(all, "limits."+key)
	}
	return all
}

// oldPlan names what a session has otherwise than its chat has now, and the limits that it does not
// have.
func (mt *mounts) oldPlan(c subject, s *liveSession) []string {
	keys := append(unequal(mt.fingerprint(c), s.Basis), ofLimits(s.notKept())...)
	slices.Sort(keys)
	return keys
}

// changed tells what became of a patch in the chat's session, if it lives.
func (mt *mounts) changed(before, after subject, s *liveSession, p chat.Patch) chat.Changed {
	now := mt.fingerprint(after)
	keys := slices.Concat(named(p), unequal(now, mt.fingerprint(before)),
		ofLimits(before.profile.Limits.Differing(after.profile.Limits)))
	if !slices.Equal(before.profile.Egress, after.profile.Egress) {
		keys = append(keys, "egress")
	}
	slices.Sort(keys)
	lives := s.lives()
	var old, behind []string
	if lives {
		old, behind = mt.oldPlan(after, s), ofLimits(s.notKept())
	}
	c := chat.Changed{Now: []string{}, NextWake: []string{}}
	for _, key := range slices.Compact(keys) {
		_, fixed := now[key]
		waits := slices.Contains(old, key) || key == "egress" && slices.Contains(old, "network")
		// A limit of the disk is of the uid, and not of a session.
		ofDisk := key == "limits.disk_max" || key == "limits.inodes_max"
		switch {
		case slices.Contains(behind, key):
			c.Retried = append(c.Retried, key)
		case waits, !lives && (fixed || strings.HasPrefix(key, "limits.") && !ofDisk):
			c.NextWake = append(c.NextWake, key)
		default:
			c.Now = append(c.Now, key)
		}
	}
	return c
}

// named are the things that a patch names.
func named(p chat.Patch) (keys []string) {
	for key, is := range map[string]bool{
		"labels": p.NoLabels || p.Labels != nil, "env": p.ChangesEnv(), "egress": p.ChangesEgress(),
		"profile": p.Profile != "",
	} {
		if is {
			keys = append(keys, key)
		}
	}
	return append(keys, ofLimits(slices.Collect(maps.Keys(p.Limits)))...)
}

// patchDetail is labelDetail with what else changes: of variables the names alone.
func patchDetail(before, after subject, p chat.Patch) map[string]string {
	d := labelDetail(p)
	if change := after.EgressChange(); p.ChangesEgress() {
		d["egress_add"], d["egress_remove"] = fmt.Sprint(change.Add), fmt.Sprint(change.Remove)
	}
	if before.Profile != after.Profile {
		d["profile"] = before.Profile + " to " + after.Profile
	}
	if p.ChangesEnv() {
		d["env"] = fmt.Sprint(slices.Sorted(maps.Keys(after.Env)))
	}
	if p.ChangesLimits() {
		for key := range before.Limits {
			d["limits."+key] = "of the profile"
		}
		for key, v := range after.Limits {
			d["limits."+key] = string(v)
		}
	}
	if p.Force {
		d["force"] = "true"
	}
	return d
}

// labelDetail returns the audit log's detail of a change: the names of the labels, without their
// values.
func labelDetail(p chat.Patch) map[string]string {
	d := map[string]string{}
	if p.NoLabels {
		d["labels"] = "removed"
	}
	for name, v := range p.Labels {
		d["label."+name] = "set"
		if v == nil {
			d["label."+name] = "removed"
		}
	}
	return d
}
