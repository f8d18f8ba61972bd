package roottest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestRulesOfSharedMemory: what is in /dev/shm is kept like other files, by name and by
// directory; without rules it can be read.
func TestRulesOfSharedMemory(t *testing.T) {
	opt := ruledOptions(t, `access: {useDefaults: false, deny: ["/dev/shm/keys/**", "*.pem"]}`)
	m := open(t, opt)
	ruled, plain := sleeper(t, m, "shm"), create(t, m, "shm without rules", "default")
	wake(t, m, ruled.ID)
	const act = "mkdir -p /dev/shm/keys; echo %s > /dev/shm/k.pem; echo %[1]s > /dev/shm/keys/k; sleep .2; cat /dev/shm/k.pem /dev/shm/keys/k; echo; echo open > /dev/shm/f; cat /dev/shm/f"
	got := tells(t, m, plain, act, secret)
	expect.True(t, strings.Count(got, secret) == 2 && strings.HasSuffix(got, "open\n"), "without rules: %q", got)
	got = tells(t, m, ruled, act, secret)
	expect.True(t, !strings.Contains(got, secret) && strings.Contains(got, "open\n"), "with rules: %q", got)
	for name, want := range map[string]string{"/dev/shm/k.pem": "deny", "/dev/shm/keys/k": "deny", "/dev/shm/f": "allow"} {
		e, err := m.Explain(operator(t.Context()), ruled.ID, chat.Question{Path: name, Op: "bash"})
		expect.True(t, err == nil && e.Verdict == want, "explain of %s: %+v, %v", name, e, err)
	}
}

// TestRulesOfASubmount: file rules hold where a mount of the host lies in what a session sees, as
// /usr/local does on many hosts, and in that mount too.
func TestRulesOfASubmount(t *testing.T) {
	needsNamespaces(t, "mounts over /usr/local, which is the machine's")
	mount(t, "tmpfs", "/usr/local", "mode=0755")
	put := func(name string) { writeFile(t, filepath.Join("/usr/local", name), secret, 0o644) }
	put("share/plain")
	put("share/.env")
	m := open(t, ruledOptions(t, `access: {useDefaults: false, rules: [{deny: "**/.env"}, {deny: "/usr/share/common-licenses/**"}]}`))
	c, plain := create(t, m, "submount", "ruled"), create(t, m, "without rules", "default")
	expect.Equal(t, tells(t, m, plain, "cat /usr/local/share/.env"), secret, "without rules it says")
	refused(t, m, c, "cat /usr/local/share/.env")
	refused(t, m, c, "ls /usr/share/common-licenses")
	expect.Equal(t, tells(t, m, c, "cat /usr/local/share/plain"), secret, "what no rule is about")
	put("later/.env")
	put("later/plain")
	until(t, "what came later is seen", func() bool { return run(t, m, c.ID, "cat /usr/local/later/plain").Stdout == secret })
	refused(t, m, c, "cat /usr/local/later/.env")
}

// TestOverlaysRefused: on a host whose /usr is on two overlays the kernel allows no third.
// chatd serves, its sessions come up, and the layer says what is lacking.
func TestOverlaysRefused(t *testing.T) {
	stackUsr(t)
	m := open(t, attackOptions(t))
	if l := layersNow(t, m)[chat.LayerView]; l.State != chat.LayerWeaker || !strings.Contains(l.Probe, "NOT HELD: lock /usr") || l.Fix == "" {
		t.Errorf("view is %s, fix %q: %s", l.State, l.Fix, l.Probe)
	}
	a, b := inmateOf(t, m, "stacked a", "default"), inmateOf(t, m, "stacked b", "default")
	expect.Equal(t, overheard(talkByOpens(t, a, b, "/usr/bin")), "ok",
		"without overlays the attack does not go through")
}

// stackUsr puts two overlays over /usr, until the test ends.
func stackUsr(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	script := `set -e; cd "$0"; mkdir empty one two
mount -t overlay one -o lowerdir=/usr:empty one; mount -t overlay two -o lowerdir=one:empty two; mount --bind two /usr`
	must.Run(t, exec.Command("sh", "-c", script, dir))
	t.Cleanup(func() {
		for _, at := range []string{"/usr", filepath.Join(dir, "two"), filepath.Join(dir, "one")} {
			out, err := exec.Command("umount", "-l", at).CombinedOutput()
			expect.True(t, err == nil, "umount %s: %v: %s", at, err, out)
		}
	})
}

// TestRulesOverOverlays: a rule about a large tree that sessions share holds in each of
// them, though each has inodes of its own there and the tree is looked through once.
func TestRulesOverOverlays(t *testing.T) {
	opt := ruledOptions(t, `access: {useDefaults: false, deny: ["/srv/**/*.key"]}`)
	dir := exposedTree(t, opt)
	for i := range 60 {
		sub := filepath.Join(dir, "sub", strings.Repeat("x", i%20+1))
		must.Do(t, os.MkdirAll(sub, 0o755))
		for j := range 20 {
			must.Do(t, os.WriteFile(filepath.Join(sub, string(rune('a'+j))+strings.Repeat("y", i/20)), nil, 0o644))
		}
	}
	key, other := filepath.Join(dir, "sub", "x", "host.key"), filepath.Join(dir, "sub", "xx", "innocent")
	must.Do(t, os.WriteFile(key, []byte("secret"), 0o644))
	must.Do(t, os.Link(key, other))
	edit(opt, "ruled", func(p *chat.Profile) { p.ExposePaths = opt.Profiles["reader"].ExposePaths })
	m := open(t, opt)
	for _, name := range []string{"first", "second", "third"} {
		c := create(t, m, "overlay rules "+name, "ruled")
		for _, f := range []string{key, other} {
			r := run(t, m, c.ID, "cat "+f)
			expect.True(t, r.Exit != 0 && r.Stdout == "", "the %s chat reads %s: %+v", name, f, r)
		}
		prints(t, m, c.ID, "cat "+dir+"/file01", "x")
	}
}

// shippedDaemon is a chatd with the profiles as they are shipped, and a skeleton.
func shippedDaemon(t *testing.T, opt provision.Options, skeleton string) *daemon {
	t.Helper()
	return startDaemon(t, opt, "", fmt.Sprintf("profiles: {agent: {skeleton: %s}, agent-large: {skeleton: %[1]s}}\n", skeleton))
}

// trees uses git and npm on trees that have .env and secrets in them.
const trees = `set -e
export GIT_CONFIG_GLOBAL=$PWD/.gitconfig npm_config_offline=true
git config --global user.email a@b.c; git config --global user.name a
git init -q s; (cd s; mkdir -p lib/secrets; echo x >a; echo k=v >.env; echo y >lib/secrets/i.js
  git add -A; git commit -qm m)
git clone -q s d; cat d/.env d/lib/secrets/i.js; (cd d; git status --porcelain)
mkdir -p p/lib/secrets; echo 'module.exports = 7' >p/lib/secrets/index.js; echo >p/.env
echo '{"name":"p","version":"1.0.0","main":"lib/secrets/index.js"}' >p/package.json
(cd p; npm pack --silent >/dev/null)
mkdir app; cd app; echo '{"name":"app","version":"1.0.0"}' >package.json
npm install --silent --no-audit --no-fund ../p/p-1.0.0.tgz
node -p 'require("p")'
sed -i s/1.0.0/1.0.1/ ../p/package.json; (cd ../p; npm pack --silent >/dev/null)
npm install --silent --no-audit --no-fund ../p/p-1.0.1.tgz
ls -A node_modules
cd ..; cp -r p p2; tar cf p.tar p; rm -rf s d p p2 app; echo done
`

// TestShippedTrees: in the shipped profiles git and npm work on trees that hold names of secrets,
// and rm removes them. What a skeleton, or somebody else directly below the home, has under such a
// name is closed, also after it was renamed, moved with its directory, or linked.
func TestShippedTrees(t *testing.T) {
	for _, program := range []string{"git", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			missing(t, program)
		}
	}
	opt := options(t)
	skeleton := filepath.Join(filepath.Dir(opt.State), "skeleton")
	for _, name := range []string{"conf/app/.env", "conf/secrets/k"} {
		file := filepath.Join(skeleton, name)
		must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o755),
			os.WriteFile(file, []byte(secret), 0o644)))
	}
	d := shippedDaemon(t, opt, skeleton)
	for _, profile := range []string{"agent", "agent-large"} {
		t.Run(profile, func(t *testing.T) { shippedTrees(t, d, profile) })
	}
}

func shippedTrees(t *testing.T, d *daemon, profile string) {
	c := must.First(d.Create(t.Context(), chat.Spec{ExternalID: "trees " + profile, Profile: profile}))(t)
	sh := func(script string) chat.RunResult {
		t.Helper()
		must.Do(t, os.WriteFile(filepath.Join(c.Home, "script"), []byte(script), 0o644))
		return must.Get(d.Run(t.Context(), c.ID, chat.RunSpec{Argv: []string{"bash", "script"}}))(t)
	}
	want := "k=v\ny\n7\n.package-lock.json\np\ndone\n"
	if r := sh(trees); r.Exit != 0 || r.Stdout != want {
		t.Errorf("exit %d, %q, want %q: %s", r.Exit, r.Stdout, want, r.Stderr)
	}
	closedFor(t, sh, c, "conf/app/.env", "conf/secrets/k", ".env", "secrets/k")
}

// closedFor checks that files are closed under every name that the chat gives them. Those that are
// not there are made by root, under the chat's session.
func closedFor(t *testing.T, sh func(string) chat.RunResult, c chat.Chat, names ...string) {
	t.Helper()
	for i, name := range names {
		file := filepath.Join(c.Home, name)
		if _, err := os.Lstat(file); err != nil {
			must.Do(t, os.Chown(putFile(t, c, name, secret), int(c.UID), int(c.UID)))
		}
		script := strings.NewReplacer("FILE", name, "DIR", filepath.Dir(name), "N", fmt.Sprint(i)).
			Replace(`cat FILE && echo read; cat < FILE; ln FILE linkN && cat linkN
mv FILE plainN && cat plainN; mkdir dN; mv plainN dN/x; mv dN eN; cat eN/x
mv eN/x FILE; [ DIR = . ] || { mv DIR movedN; cat movedN/*; cat movedN/.env; }`)
		if r := sh(script); strings.Contains(r.Stdout, secret) || r.Stderr == "" {
			t.Errorf("%s: %q %q", name, r.Stdout, r.Stderr)
		}
	}
}

// TestRulesOnOverlay: where homes and state are on overlayfs, as in a container, the shipped
// profiles wake, and what their rules close stays closed.
func TestRulesOnOverlay(t *testing.T) {
	needsNamespaces(t, "NOT TRIED: mounts over directories of the machine's")
	opt := options(t)
	overlay(t, filepath.Join(opt.State, "tmp"), filepath.Join(opt.State, "vartmp"), opt.Homes)
	skeleton := filepath.Join(filepath.Dir(opt.State), "skeleton")
	for _, name := range []string{"conf/.env", ".env", "secrets/k"} {
		file := filepath.Join(skeleton, name)
		must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o755),
			os.WriteFile(file, []byte(secret), 0o644)))
	}
	d := shippedDaemon(t, opt, skeleton)
	c := must.First(d.Create(t.Context(), chat.Spec{ExternalID: "on overlay", Profile: "agent"}))(t)
	sh := func(script string) chat.RunResult {
		t.Helper()
		must.Do(t, os.WriteFile(filepath.Join(c.Home, "script"), []byte(script), 0o644))
		return must.Get(d.Run(t.Context(), c.ID, chat.RunSpec{Argv: []string{"bash", "script"}}))(t)
	}
	if r := sh("echo free >f; cat f; mkdir -p a/secrets; echo x >a/.env; rm -rf a; ls"); r.Exit != 0 ||
		!strings.Contains(r.Stdout, "free") {
		t.Errorf("exit %d: %s%s", r.Exit, r.Stdout, r.Stderr)
	}
	closedFor(t, sh, c, "conf/.env", ".env", "secrets/k")
	got := must.Get(d.Get(t.Context(), c.ID))(t)
	for _, l := range got.Layers {
		if l.Name == chat.LayerView && !strings.Contains(l.Probe, "names") {
			t.Errorf("layer view does not say what is weaker there: %s", l.Probe)
		}
	}
}

// overlay puts an overlay over each directory, until the test ends.
func overlay(t *testing.T, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		below := t.TempDir()
		script := `set -e; mkdir -p "$1"; mount -t tmpfs o "$0"; cd "$0"; mkdir lower upper work
mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work "$1"; chmod 711 "$1"`
		must.Run(t, exec.Command("sh", "-c", script, below, dir))
		t.Cleanup(func() {
			out, err := exec.Command("umount", "-l", dir, below).CombinedOutput()
			expect.True(t, err == nil, "umount: %v: %s", err, out)
		})
	}
}
