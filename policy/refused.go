package policy

import (
	"context"
	"fmt"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/enforcer"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/quota"
	"github.com/chatd/chatd/shims"
	"github.com/chatd/chatd/sys"
)

// The kernel refuses an open by file rules in two ways. A mask mount refuses it without a
// report. For a file that came later the kernel asks the enforcer, which counts its refusals.

// refused returns what audits a line about refused opens.
func (p *InForce) refused(ctx context.Context) func(enforcer.Refusal) {
	return func(r enforcer.Refusal) {
		detail := map[string]string{"more": fmt.Sprint(r.Times), "by": "the kernel"}
		if !r.Sum {
			c, err := p.opt.Chat(r.Chat)
			if err != nil {
				return // reaped meanwhile
			}
			detail = p.refusedFile(c, r)
		}
		p.opt.Audit(ctx, r.Chat, "open", detail)
	}
}

// refusedFile returns the audit detail of one refused file, with the rule that closes it now.
func (p *InForce) refusedFile(c Chat, r enforcer.Refusal) map[string]string {
	detail := map[string]string{
		"path": chat.QuotePath(r.Path), "times": fmt.Sprint(r.Times), "by": "the kernel",
	}
	if r.By != r.Path && r.By != "" {
		detail["name"] = chat.QuotePath(r.By) // a name that it had, or would have
	}
	rules, err := p.Rules(c)
	if err != nil {
		detail["error"] = err.Error()
		return detail
	}
	if h := rules.ClassOf(r.By); r.By != "" && h.Class != filerules.Open {
		detail["rule"] = chat.QuotePath(h.Why.Rule.String())
		detail["place"], detail["layer"] = chat.QuotePath(h.Why.Rule.Place), string(h.Why.Layer)
	} else {
		detail["rule"] = "one about a name that it had"
	}
	return detail
}

// The shims of a session report denials through a fifo, one line of JSON for each. The chat can
// suppress or forge them. A fifo carries no descriptors and holds at most 64 KiB, and each
// session has its own, which identifies the chat.

// heardBurst lines are audited immediately, and one more every heardEvery. Meanwhile chatd reads
// no further, so that a chat cannot make it work or write without bound.
const (
	heardBurst = 20
	heardEvery = 5 * time.Second
)

// hear audits the denials of a session's shims until stop is called. A session of an older chatd
// may have no fifo, and then no denial is read.
func (p *InForce) hear(id chat.ID, fifo string) (stop func()) {
	f, err := sys.OpenFIFO(fifo)
	if err != nil {
		p.opt.Log.Debug("not listening to the shims", "chat", id, "why", err)
		return func() {}
	}
	ctx, stop := context.WithCancel(context.Background())
	context.AfterFunc(ctx, func() { _ = f.Close() })
	lines := quota.NewAllowance(heardBurst, heardEvery, time.Now)
	may := func() bool { return lines.Wait(ctx) }
	p.hearing.Go(func() {
		shims.ReadShimDenials(f, may, func(line []byte, d shims.ShimDenial, err error) {
			p.opt.Audit(context.Background(), id, "shim", heard(line, d, err))
		})
	})
	return stop
}

// heard returns the audit detail of one line. An error says that no shim wrote it.
func heard(line []byte, d shims.ShimDenial, err error) map[string]string {
	if err != nil {
		text := chat.QuotePath(string(line))
		return map[string]string{"unreadable": text, "by": "the chat's word"}
	}
	return map[string]string{
		"program": chat.QuotePath(d.Program), "argv": chat.QuotePath(d.Argv),
		"rule": chat.QuotePath(d.Rule), "by": "the chat's word",
	}
}
