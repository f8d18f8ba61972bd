package policy

import (
	"errors"

	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/filewire"
)

// redact leaves the rule, its place and the path out of a denial by rules or by the kernel, if the
// caller may know no more than that it is denied.
func redact(err error, terse bool) error {
	var d *filewire.Denial
	if terse && errors.As(err, &d) && (byRules(d) || d.Errno != "") {
		d.Path, d.Rule, d.Place, d.Layer = "", "", "", ""
	}
	return err
}

// byRules reports a denial that a [FileCheck] made of a rule.
func byRules(d *filewire.Denial) bool {
	switch filerules.Layer(d.Layer) {
	case filerules.LayerAgentRules, filerules.LayerAgentDeny, filerules.LayerGlobalRules,
		filerules.LayerGlobalDeny, filerules.LayerDefaults:
		return true
	}
	return false
}
