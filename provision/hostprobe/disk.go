package hostprobe

import (
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/layers"
)

// diskTried is the directory that a try makes and removes. Homes are named by ids, and the private
// trees by users.
const diskTried = string(ID)

// diskLayer writes over a quota on each file system that enforces them.
func (p *Prober) diskLayer() chat.Layer {
	if p.opt.Layers.Without(chat.LayerDisk) {
		return layers.Disk(nil, nil, layers.ErrLeftOut)
	}
	tried, err := p.opt.Disks.Try(diskTried, p.opt.UID)
	return layers.Disk(tried, p.opt.Disks.Unbounded(), err)
}
