package layers

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestInstall: what is missing is installed by the package manager of the host, which os-release(5)
// tells; elsewhere the packages are named.
func TestInstall(t *testing.T) {
	old := osRelease
	t.Cleanup(func() { osRelease = old })
	osRelease = filepath.Join(t.TempDir(), "os-release")
	for _, c := range []struct{ text, want string }{
		{"", "install iptables"},
		{"PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nID=debian\n", "apt-get install iptables"},
		{"NAME=\"Ubuntu\"\nID=ubuntu\nID_LIKE=debian\n", "apt-get install iptables"},
		{"ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n", "apt-get install iptables"},
		{"ID=fedora\nVARIANT_ID=server\n", "dnf install iptables"},
		{"ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", "dnf install iptables"},
		{"ID=\"opensuse-leap\"\nID_LIKE=\"suse opensuse\"\n", "zypper install iptables"},
		{"ID=arch\nBUILD_ID=rolling\n", "pacman -S iptables"},
		{"ID=manjaro\nID_LIKE=arch\n", "pacman -S iptables"},
		{"ID=alpine\nVERSION_ID=3.20.0\n", "apk add iptables"},
		{"ID=nixos\n", "install iptables"},
		{"ID=\"\x00; rm -rf /\"\nID_LIKE", "install iptables"},
	} {
		must.Do(t, os.WriteFile(osRelease, []byte(c.text), 0o600))
		expect.Equal(t, NoPackets(errors.New("it is not there")).Fix, c.want, "%q", c.text)
	}
	account := Account("userdb", errors.New("not found by name"), false)
	expect.True(t, account.Name == chat.LayerAccount && account.Fix[:8] == "install ", "%+v", account)
	if got := install("libnss-systemd tmux"); got != "install libnss-systemd tmux" {
		t.Error(got)
	}
	must.Do(t, os.WriteFile(osRelease, []byte("ID=fedora\n"), 0o600))
	if got := install("libnss-systemd"); got != "dnf install systemd" {
		t.Error(got)
	}
	osRelease = filepath.Join(t.TempDir(), "none")
	if got := install("tmux"); got != "install tmux" {
		t.Errorf("without the file: %q", got)
	}
}
