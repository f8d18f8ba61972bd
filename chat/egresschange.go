package chat

import (
	"fmt"
	"net/netip"
	"slices"
)

// EgressChange is how the egress of one chat differs from that of its profile.
type EgressChange struct {
	// Add are further destinations, each within one of the profile's EgressMayAdd.
	Add []Allow
	// Remove are entries of the profile's egress that do not hold for the chat.
	Remove []Allow
}

// MaxEgressChange bounds each list of an [EgressChange].
const MaxEgressChange = 64

// IsZero reports whether the chat has the egress of its profile.
func (c EgressChange) IsZero() bool { return len(c.Add)+len(c.Remove) == 0 }

// Equal reports whether two changes are the same.
func (c EgressChange) Equal(d EgressChange) bool {
	return slices.Equal(c.Add, d.Add) && slices.Equal(c.Remove, d.Remove)
}

// Validate reports a list that is too long, as [ErrInvalid].
func (c EgressChange) Validate() error {
	for _, l := range []struct {
		field string
		list  []Allow
	}{{"egress_add", c.Add}, {"egress_remove", c.Remove}} {
		if len(l.list) > MaxEgressChange {
			return Invalid("cannot use %s: %d entries, want at most %d", l.field, len(l.list),
				MaxEgressChange)
		}
	}
	return nil
}

// CheckEgress reports the first entry of a change that the profile does not admit: as [ErrDenied] a
// destination that EgressMayAdd does not cover, else as [ErrInvalid].
func (p Profile) CheckEgress(c EgressChange) error {
	if err := c.Validate(); err != nil || c.IsZero() {
		return err
	}
	if p.EffectiveNetwork() != NetworkOwn {
		return Invalid("cannot change the egress of a chat of profile %s: its network is %s, want own",
			p.Name, p.EffectiveNetwork())
	}
	for i, a := range c.Add {
		if !p.mayAdd(a) {
			return fmt.Errorf("cannot use egress_add[%d] %s: no entry of egress_may_add of profile %s covers it: %w",
				i, a, p.Name, ErrDenied)
		}
	}
	for i, a := range c.Remove {
		if !slices.Contains(p.Egress, a) {
			return Invalid("cannot use egress_remove[%d] %s: want an entry of the egress of profile %s", i, a,
				p.Name)
		}
	}
	return nil
}

// With returns the profile as it holds for a chat with the change. What the profile does not admit
// any more is passed over.
func (p Profile) With(c EgressChange) Profile {
	if c.IsZero() {
		return p
	}
	var list []Allow
	for _, a := range p.Egress {
		if !slices.Contains(c.Remove, a) {
			list = append(list, a)
		}
	}
	for _, a := range c.Add {
		if p.mayAdd(a) && !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	network := p.EffectiveNetwork() // it stays, whatever the list
	p.Egress, p.Network = list, network
	return p
}

// OnlyOutside returns what of c.Add only a wide entry of EgressMayAdd covers. As that entry would
// (see [Allow.Wide]), it means the internet, and not an address of this host.
func (p Profile) OnlyOutside(c EgressChange) (list []Allow) {
	for _, a := range c.Add {
		meant := func(may Allow) bool { return !may.Wide() && may.covers(a) }
		if !slices.Contains(p.Egress, a) && !slices.ContainsFunc(p.EgressMayAdd, meant) {
			list = append(list, a)
		}
	}
	return list
}

func (p Profile) mayAdd(a Allow) bool {
	return slices.ContainsFunc(p.EgressMayAdd, func(may Allow) bool { return may.covers(a) })
}

// covers reports whether a opens all that b opens. A wide entry means the internet: it covers no
// network that is special, and a metadata address is covered by itself alone.
func (a Allow) covers(b Allow) bool {
	if a.UDP != b.UDP || b.Low < a.Low || a.High < b.High || a.Named() != b.Named() {
		return false
	}
	if a.Named() {
		return (a.NoSNI || !b.NoSNI) && a.CoversHost(b)
	}
	if a.Prefix == b.Prefix {
		return true
	}
	inside := a.Prefix.Bits() <= b.Prefix.Bits() && a.Prefix.Contains(b.Prefix.Addr())
	meets := func(s netip.Prefix) bool { return s.Overlaps(b.Prefix) }
	switch {
	case !inside, b.Prefix.IsSingleIP() && slices.Contains(metadata, b.Prefix.Addr()):
		return false
	}
	return !a.Wide() || !slices.ContainsFunc(special, meets)
}
