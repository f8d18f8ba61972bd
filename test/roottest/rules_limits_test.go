package roottest

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/must"
)

// TestSeedLimits is the table "does NOT protect against" of Clawdbot's path rules: each
// row tries to get the content of a denied file in a real session. It must not; with the
// rule off it does, so that the attempt is known to be one.
func TestSeedLimits(t *testing.T) {
	for _, ruled := range []bool{true, false} {
		t.Run(map[bool]string{true: "rules", false: "control"}[ruled], func(t *testing.T) {
			rules := `access: {useDefaults: true, deny: ["~/d/inner"]}`
			if !ruled {
				rules = "access: {useDefaults: false}"
			}
			m := open(t, ruledOptions(t, rules))
			c := sleeper(t, m, "limits")
			putFile(t, c, "d/.env", secret)
			putFile(t, c, "d/inner/f", secret)
			wake(t, m, c.ID)
			for _, row := range limitRows(t, c) {
				t.Run(row.name, func(t *testing.T) { limit(t, m, c, row, ruled) })
			}
		})
	}
}

// limitRow is one row: a command of the chat's, or of the attacker in its home.
type limitRow struct {
	name, command string
	// impossible: the way is shut by another wall too, so that it does not get through
	// without rules either; why says by which.
	impossible string
}

func limit(t *testing.T, m *manager, c chat.Chat, row limitRow, ruled bool) {
	for word := range strings.FieldsSeq(row.command) {
		if _, err := os.Stat(word); strings.HasPrefix(word, "/usr/bin/") && err != nil {
			noProgram(t, word)
		}
	}
	r, err := m.Run(operator(t.Context()), c.ID, chat.RunSpec{Command: row.command, Timeout: tryTimeout})
	must.Do(t, err)
	got := strings.Contains(r.Stdout+r.Stderr, secret)
	switch {
	case ruled && got:
		t.Errorf("%s got through: %s", row.command, r.Stdout)
	case !ruled && !got && row.impossible == "":
		t.Errorf("without rules it does not get through either: exit %d %s %s", r.Exit, r.Stdout, r.Stderr)
	case !ruled && got && row.impossible != "":
		t.Errorf("it got through, and %s should stop it", row.impossible)
	}
	t.Logf("exit %d %.200q", r.Exit, r.Stdout+r.Stderr)
}

func limitRows(t *testing.T, c chat.Chat) []limitRow {
	b64 := base64.StdEncoding.EncodeToString([]byte(c.Home + "/d/.env"))
	hexed := hex.EncodeToString([]byte(c.Home + "/d/.env"))
	writeLimitPrograms(t, c)
	return []limitRow{
		{name: "base64 path", command: fmt.Sprintf(`cat "$(echo %s | base64 -d)"`, b64)},
		{name: "hex path", command: fmt.Sprintf(`cat "$(/usr/bin/perl -e 'print pack "H*", shift' %s)"`, hexed)},
		{name: "python3 -c open", command: `/usr/bin/python3 -c 'print(open("d/.e"+"nv").read())'`},
		{name: "perl", command: `/usr/bin/perl -e 'open(F, "<", "d/." . "env") or die $!; print <F>'`},
		{name: "awk", command: `awk '{print}' d/.env`},
		{name: "dd", command: `dd if=d/.env status=none`},
		{name: "tar", command: `tar cf - d 2>/dev/null | tr -d '\0'`},
		{name: "cp of the parent", command: `cp -r d copy; cat copy/.env copy/inner/f; rm -rf copy`},
		{name: "script written then run", command: `printf 'cat d/.%s\n' env > s.sh; sh s.sh`},
		{name: "/proc/self/root", command: `cat /proc/self/root$HOME/d/.env`},
		{name: "/proc/self/cwd", command: `cat /proc/self/cwd/d/.env`},
		{name: "/proc/self/fd", command: `cd d; cat /proc/self/fd/3/.env 3< .`},
		{name: "symlink chain", command: `ln -sfn d l1; ln -sfn l1/.env l2; ln -sfn l2 l3; cat l3`},
		{name: "symlink race", command: `./race 10 d/.env`},
		{name: "hard link", command: `ln -f d/.env hard; ln -f d/inner/f hard2; cat hard hard2`},
		{name: "mv of the parent", command: `mv d e; cat e/.env e/inner/f; mv e/inner e/x; cat e/x/f; mv e/x e/inner; mv e d`},
		{name: "nested namespaces", command: `/usr/bin/unshare -Urm sh -c 'umount -l d/.env; cat d/.env'`, impossible: "layer proc"},
		{name: "bash -c with $IFS", command: `bash -c 'cat${IFS}d/.e""nv'`},
		{name: "another language runtime", command: otherRuntime()},
		{name: "a compiled C program", command: `./creader d/.env`},
		{name: "io_uring", command: `./uring d/.env`, impossible: "layer seccomp"},
		{name: "open_by_handle_at", command: `./handle d/.env`, impossible: "layer seccomp"},
		{name: "a debugger", command: `printf 'break main\nrun\nprint (int)open("d/.env",0)\nprint (long)read($1,buf,99)\nprint buf\n' > gdbs; /usr/bin/gdb -nx -batch -x gdbs --args ./creader d/.env 2>&1 || ./traced d/.env`},
		{name: "exfiltration over the network", command: exfiltration},
	}
}

// noProgram skips a row that the machine has no program for: a machine for tests has few.
func noProgram(t *testing.T, program string) {
	t.Helper()
	if onHost() {
		t.Skipf("SKIPPED: this machine has no %s", program)
	}
	missing(t, program)
}

// otherRuntime is a runtime besides the named ones that is there.
func otherRuntime() string {
	for _, r := range [][2]string{
		{"/usr/bin/ruby", `/usr/bin/ruby -e 'puts File.read("d/.env")'`},
		{"/usr/bin/node", `/usr/bin/node -e 'console.log(require("fs").readFileSync("d/.env","utf8"))'`},
		{"/usr/bin/lua5.4", `/usr/bin/lua5.4 -e 'print(io.open("d/.env"):read("a"))'`},
	} {
		if _, err := os.Stat(r[0]); err == nil {
			return r[1]
		}
	}
	return `./` + attackName + ` cat d/.env` // Go's
}

// exfiltration sends the file over TCP and says what arrived. Where packets may go is
// other tests' (TestAttackNetwork); what was not read cannot be sent anywhere.
const exfiltration = `/usr/bin/python3 -c '
import socket, subprocess
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen()
subprocess.run(["bash", "-c", "cat d/.env > /dev/tcp/127.0.0.1/%d" % s.getsockname()[1]])
print(s.accept()[0].recv(99))'`

// writeLimitPrograms compiles small C programs into the chat's home.
func writeLimitPrograms(t *testing.T, c chat.Chat) {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		noProgram(t, "gcc")
	}
	for name, source := range map[string]string{"creader": readerC, "race": raceC, "uring": uringC, "handle": handleC, "traced": readerC} {
		file := filepath.Join(t.TempDir(), name)
		must.Do(t, os.WriteFile(file+".c", []byte(source), 0o600))
		must.Run(t, exec.Command("gcc", "-g", "-O0", "-static", "-o", file, file+".c"))
		b := must.Get(os.ReadFile(file))(t)
		to := filepath.Join(c.Home, name)
		must.Do(t, errors.Join(os.WriteFile(to, b, 0o755), os.Chmod(to, 0o755), os.Chown(to, int(c.UID), int(c.UID))))
	}
}

const readerC = `
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
char buf[100];
int main(int n, char **a) {
	int fd = open(a[1], O_RDONLY);
	if (fd < 0) { perror("open"); return 1; }
	read(fd, buf, 99); puts(buf); return 0;
}`

// raceC swaps a link between a harmless file and the denied one while it reads by it.
const raceC = `
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <signal.h>
#include <sys/wait.h>
int main(int n, char **a) {
	long tries = 0, got = 0; char b[100], dir[300];
	int f = open("harmless", O_CREAT|O_WRONLY, 0600); write(f, "harmless", 8); close(f);
	pid_t p = fork();
	if (!p) for (;;) {
		unlink("swap.n"); symlink("harmless", "swap.n"); rename("swap.n", "swap");
		unlink("swap.n"); symlink(a[2], "swap.n"); rename("swap.n", "swap");
		rename("d/.env", "d/moved"); rename("d/moved", "d/.env");
		rename("d", "d2"); rename("d2", "d");
	}
	for (time_t end = time(0) + atoi(a[1]); time(0) < end; tries++) {
		memset(b, 0, 100);
		int fd = open(tries % 2 ? "swap" : "d/moved", O_RDONLY);
		if (fd < 0) continue;
		if (read(fd, b, 99) > 0 && strncmp(b, "harmless", 8)) { if (!got++) puts(b); }
		close(fd);
	}
	kill(p, 9); wait(0); rename("d2", "d"); rename("d/moved", "d/.env");
	printf("%ld tries, %ld reads\n", tries, got); return 0;
}`

const uringC = `
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int n, char **a) {
	char p[256]; memset(p, 0, sizeof p);
	long fd = syscall(425, 4, p);
	if (fd < 0) { perror("io_uring_setup"); return 1; }
	printf("io_uring is there\n"); return 0;
}`

const handleC = `
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int n, char **a) {
	struct file_handle *h = malloc(sizeof *h + 128); int m; char b[100] = {0};
	h->handle_bytes = 128;
	if (name_to_handle_at(AT_FDCWD, a[1], h, &m, 0)) perror("name_to_handle_at");
	int d = open(".", O_RDONLY);
	int fd = open_by_handle_at(d, h, O_RDONLY);
	if (fd < 0) { perror("open_by_handle_at"); return 1; }
	read(fd, b, 99); puts(b); return 0;
}`
