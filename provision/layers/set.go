package layers

import (
	"context"
	"slices"
	"sync"

	"github.com/chatd/chatd/chat"
)

// Options say which layers a host may lack.
type Options struct {
	// AllowMissing are those that config excuses.
	AllowMissing []chat.LayerName
	// Without are those that a test leaves out.
	Without []chat.LayerName
}

// Set holds the results of the last probe, and which layers are left out. Its methods are safe
// for concurrent use.
type Set struct {
	opt Options
	// tried ends after the first probe.
	tried     context.Context
	endTrying context.CancelFunc

	mu         sync.Mutex
	found      Result
	excused    []chat.LayerName // missing on this host, as config allows
	unprepared error            // why nothing could be tried beside the layers
	fit        bool
}

// New makes a Set in which every layer is unknown.
func New(opt Options) *Set {
	s := &Set{opt: opt, found: untried()}
	s.tried, s.endTrying = context.WithCancel(context.Background())
	return s
}

// Put stores the results of a probe.
func (s *Set) Put(f Result) {
	s.mu.Lock()
	s.found = f
	s.mu.Unlock()
	s.checkFit()
}

// Host returns the results of the last probe, outermost wall first.
func (s *Set) Host() []chat.Layer {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]chat.Layer, 0, len(s.found.layers))
	for _, name := range chat.LayerNames() {
		if l, ok := s.found.layers[name]; ok {
			all = append(all, l)
		}
	}
	return all
}

// Of is Host for sessions of one kind of network.
func (s *Set) Of(kind chat.Network) []chat.Layer {
	all := s.Host()
	s.mu.Lock()
	defer s.mu.Unlock()
	network, ok := s.found.network[kind]
	for i := range all {
		if ok && all[i].Name == chat.LayerNetwork {
			all[i] = network
		}
	}
	return all
}

// Stands reports whether the last probe found the layer in force, if only in a weaker form.
func (s *Set) Stands(name chat.LayerName) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return stands(s.found.layers[name])
}

// Without reports whether the layer is left out: a test asks for that, or this host lacks the
// layer and config excuses it.
func (s *Set) Without(l chat.LayerName) bool { return slices.Contains(s.LeftOut(), l) }

// LeftOut returns the layers that are left out, in no order.
func (s *Set) LeftOut() []chat.LayerName {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(slices.Clone(s.opt.Without), s.excused...)
}

// Network returns the kind of network that a session of the profile gets.
func (s *Set) Network(p chat.Profile) chat.Network {
	if s.Without(chat.LayerNetwork) {
		return chat.NetworkShared
	}
	return p.EffectiveNetwork()
}

// Excuse leaves a layer out from now on, if config allows that.
func (s *Set) Excuse(l chat.LayerName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.opt.AllowMissing, l) && !slices.Contains(s.excused, l) {
		s.excused = append(s.excused, l)
	}
}

// Unexcuse takes an Excuse back.
func (s *Set) Unexcuse(l chat.LayerName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.excused = slices.DeleteFunc(s.excused, func(e chat.LayerName) bool { return e == l })
}

// Excusable returns the layers of a session that config excuses and that the first probe may
// find missing. After that probe none is excused: a session that does not come up is then a
// failure, not a property of the host.
func (s *Set) Excusable() []chat.LayerName {
	if s.Tried() {
		return nil
	}
	var may []chat.LayerName
	for _, l := range []chat.LayerName{chat.LayerLandlock, chat.LayerSeccomp, chat.LayerProc,
		chat.LayerNetwork, chat.LayerPrivileges} {
		if slices.Contains(s.opt.AllowMissing, l) && !s.Without(l) {
			may = append(may, l)
		}
	}
	return may
}
