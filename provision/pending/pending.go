package pending

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
)

// Fingerprint returns a digest of each thing that a session has from start to end, by its key.
// secrets are the variables of its placeholders.
func Fingerprint(rec state.Record, p chat.Profile, secrets []string) map[string]string {
	env := map[string]string{}
	maps.Copy(env, p.Env)
	maps.Copy(env, rec.Env)
	all := map[string]string{}
	for key, v := range map[string]any{
		"env": env, "secrets": secrets, "network": p.EffectiveNetwork(),
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

// Old names what a session with fingerprint of has otherwise than now, and the limits that it does
// not have.
func Old(of, now map[string]string, behind []string) (keys []string) {
	for key, is := range now {
		if of[key] != is {
			keys = append(keys, key)
		}
	}
	for _, key := range behind {
		keys = append(keys, "limits."+key)
	}
	slices.Sort(keys)
	return keys
}

// Side is a chat before or after a patch.
type Side struct {
	Profile     chat.Profile
	Fingerprint map[string]string
}

// Session is that of the chat after the patch: what it has otherwise, and which limits it has not.
type Session struct {
	Lives       bool
	Old, Behind []string
}

// Changed tells what became of a patch.
func Changed(before, after Side, p chat.Patch, s Session) chat.Changed {
	keys := named(p)
	for key, is := range after.Fingerprint {
		if before.Fingerprint[key] != is {
			keys = append(keys, key)
		}
	}
	for _, key := range before.Profile.Limits.Differing(after.Profile.Limits) {
		keys = append(keys, "limits."+key)
	}
	if !slices.Equal(before.Profile.Egress, after.Profile.Egress) {
		keys = append(keys, "egress")
	}
	slices.Sort(keys)
	c := chat.Changed{Now: []string{}, NextWake: []string{}}
	for _, key := range slices.Compact(keys) {
		_, fixed := after.Fingerprint[key]
		waits := slices.Contains(s.Old, key) || key == "egress" && slices.Contains(s.Old, "network")
		switch limit, isLimit := strings.CutPrefix(key, "limits."); {
		case isLimit && s.Lives && slices.Contains(s.Behind, limit):
			c.Retried = append(c.Retried, key)
		case waits, !s.Lives && (fixed || isLimit && !isDiskLimit(limit)):
			c.NextWake = append(c.NextWake, key)
		default:
			c.Now = append(c.Now, key)
		}
	}
	return c
}

// isDiskLimit reports whether a limit is of the uid, and not of a session.
func isDiskLimit(key string) bool { return key == "disk_max" || key == "inodes_max" }

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
	for key := range p.Limits {
		keys = append(keys, "limits."+key)
	}
	return keys
}

// Detail is LabelDetail with what else changes: of variables the names alone.
func Detail(before, after state.Record, p chat.Patch) map[string]string {
	d := LabelDetail(p)
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
		for key, v := range after.Limits {
			d["limits."+key] = string(v)
		}
		for key := range before.Limits {
			if _, still := after.Limits[key]; !still {
				d["limits."+key] = "of the profile"
			}
		}
	}
	if p.Force {
		d["force"] = "true"
	}
	return d
}

// LabelDetail returns the audit log's detail of a change: the names of the labels, without their
// values.
func LabelDetail(p chat.Patch) map[string]string {
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
