package plan

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/chatd/chatd/chat"
)

// etcBound and etcCopied are the paths of the host's /etc that a session sees: none names a person,
// a key or a neighbour. Every bind mount delays a session's prompt by 0.2 ms, a copied file hardly
// at all. So small files are copied, and stay as they were when the session began. etcSettings are
// path.Match patterns of settings that packages install and that programs of /usr need to start, or
// to find their data.
var (
	etcBound    = []string{"/etc/ld.so.cache", "/etc/alternatives", "/etc/ssl/certs", "/etc/mime.types"}
	etcSettings = []string{
		"/etc/ImageMagick-*", "/etc/OpenCL", "/etc/R", "/etc/chromium", "/etc/chromium.d", "/etc/fonts",
		"/etc/ghostscript", "/etc/glvnd",
		"/etc/gnutls", "/etc/java-*", "/etc/maven", "/etc/texmf", "/etc/vulkan", "/etc/xml",
	}
	etcCopied = []string{
		"/etc/localtime", "/etc/os-release", "/etc/services", "/etc/protocols", "/etc/ssl/openssl.cnf",
		"/etc/debian_version", "/etc/gai.conf",
		"/etc/host.conf", "/etc/inputrc", "/etc/magic", "/etc/magic.mime", "/etc/papersize", "/etc/timezone",
	}
)

// Etc is what a view takes from the host's /etc, as it was when it was read.
type Etc struct {
	settings []string // directories that are bound
	copied   []DataFile
}

// ReadEtc reads the host's /etc for [View.Etc].
func ReadEtc() *Etc { return &Etc{settingsIn("/"), copiedFiles()} }

// etc is what v takes from the host's /etc.
func (v View) etc() *Etc {
	if v.Etc != nil {
		return v.Etc
	}
	return ReadEtc()
}

// settingsIn returns the directories below root that match etcSettings. It skips symbolic
// links, which may lead anywhere.
func settingsIn(root string) []string {
	var all []string
	for _, pattern := range etcSettings {
		found, _ := filepath.Glob(filepath.Join(root, pattern)) // the patterns are well-formed: TestSettings
		for _, f := range found {
			if fi, err := os.Lstat(f); err == nil && fi.IsDir() {
				all = append(all, strings.TrimPrefix(f, strings.TrimSuffix(root, "/")))
			}
		}
	}
	return all
}

// maxCopied bounds a copied file: its pages are charged to the chat.
const maxCopied = 64 << 10

// copiedFiles reads those of etcCopied that exist and are small.
func copiedFiles() []DataFile {
	var files []DataFile
	for _, p := range etcCopied {
		fi, err := os.Stat(p)
		if err != nil || !fi.Mode().IsRegular() || fi.Size() > maxCopied {
			continue
		}
		if content, err := os.ReadFile(p); err == nil {
			files = append(files, DataFile{Target: p, Content: content})
		}
	}
	return files
}

// dataFiles are the files made for this chat alone.
func (v View) dataFiles() []DataFile {
	files := []DataFile{
		{Target: InsideBashrc, Content: []byte(Bashrc)},
		{Target: InsideTmux, Content: v.TmuxConf},
		{Target: InsideNode, Content: nodeScript},
	}
	if !v.LeavesOut(chat.LayerView) {
		files = append(files,
			DataFile{Target: "/etc/passwd", Content: []byte(v.passwd())},
			DataFile{Target: "/etc/group", Content: []byte(v.group())},
			DataFile{Target: "/etc/hostname", Content: []byte(v.User + "\n")},
			DataFile{Target: "/etc/hosts", Content: []byte(v.hosts())},
			DataFile{Target: "/etc/resolv.conf", Content: []byte(v.resolvConf())},
			DataFile{Target: "/etc/nsswitch.conf", Content: []byte(nsswitch)},
		)
		files = append(append(files, v.etc().copied...), v.sizeFiles()...)
	}
	return files
}

// passwd names the chat and uid 65534, as which the files of every other user appear in a user
// namespace that maps one uid.
func (v View) passwd() string {
	return fmt.Sprintf("%s:x:%d:%d:chat:%s:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n", v.User, v.UID, v.UID, v.Home)
}

func (v View) group() string {
	return fmt.Sprintf("%s:x:%d:\nnogroup:x:65534:\n", v.User, v.UID)
}

func (v View) hosts() string {
	return "127.0.0.1 localhost " + v.User + "\n::1 localhost ip6-localhost ip6-loopback\n"
}

// nsswitch asks no daemon: a name service of the host sends under its own uid, which the owner
// rules do not confine.
const nsswitch = "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nservices: files\nprotocols: files\nnetworks: files\n"

// resolvConf follows resolv.conf(5). In a network of its own chatd-egress answers on 127.0.0.1;
// elsewhere no server does.
func (v View) resolvConf() string {
	if v.Network != chat.NetworkOwn {
		return "# This chat's profile lists no name, so no name can be looked up.\n"
	}
	return "nameserver 127.0.0.1\n"
}
