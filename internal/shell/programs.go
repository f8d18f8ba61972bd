package shell

import (
	"strings"
)

// words of s as a set.
func set(s string) map[string]bool {
	m := map[string]bool{}
	for name := range strings.FieldsSeq(s) {
		m[name] = true
	}
	return m
}

// filePrograms take files as their operands, also without a slash in them.
var filePrograms = set(`cat tac nl less more most head tail wc sort uniq cut paste join comm split csplit tee tr
	cp mv rm ln link unlink mkdir rmdir touch chmod chown chgrp chattr stat file du df ls dir vdir tree install truncate shred
	dd readlink realpath namei diff diff3 sdiff cmp patch od xxd hexdump hd strings base64 base32 basenc iconv column fold fmt
	md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum cksum sum gzip gunzip zcat bzip2 bunzip2 bzcat xz unxz xzcat
	zstd unzstd zstdcat zip unzip tar cpio ar rsync scp vi vim nvim view nano ed emacs bat sed awk gawk mawk nawk grep egrep
	fgrep zgrep rg ag jq yq cc gcc g++ c++ clang clang++ tcc perl python python2 python3 ruby node php lua source . mkfifo mknod setfacl getfacl setfattr
	getfattr mapfile expand unexpand rev shuf tsort pr look xmllint sqlite3 cd pushd chdir mktemp rename gpg age openssl`)

// firstIsText are programs whose first operand is an expression or a mode and no
// file, unless an option gave it.
var firstIsText = set(`sed awk gawk mawk nawk grep egrep fgrep zgrep rg ag jq yq chmod chown chgrp tr chattr look rename setfacl`)

// scriptOptions are the programs of firstIsText and interpreters whose options have a script:
// letter by letter. The word after such an option is not a file.
var scriptOptions = map[string]string{
	"sed": "e", "grep": "e", "egrep": "e", "fgrep": "e", "zgrep": "e", "rg": "e", "perl": "eEnIM",
	"python":  "cm",
	"python2": "cm", "python3": "cm", "ruby": "e", "node": "ep", "php": "r", "lua": "e",
}

// valueOptions are options that are followed by something that is not a file.
var valueOptions = map[string]string{
	"head": "nc", "tail": "nc", "grep": "ABCm", "egrep": "ABCm", "fgrep": "ABCm", "rg": "ABCmgt",
	"cut": "dfbc", "sort": "kt",
	"split": "bln", "uniq": "fsw", "paste": "d", "join": "t12j", "fold": "w", "fmt": "w", "awk": "Fv",
	"gawk": "Fv", "mawk": "Fv",
	"od": "AtNjw", "xxd": "lsc", "hexdump": "ens", "strings": "n", "install": "mog", "mkdir": "m",
	"truncate": "s", "du": "d",
	"tree": "LIP", "column": "st", "base64": "w", "less": "x", "nl": "bnw", "iconv": "ft", "mknod": "m",
	"touch": "dt", "stat": "c",
	"cc": "xDU", "gcc": "xDU", "g++": "xDU", "c++": "xDU", "clang": "xDU", "clang++": "xDU", "tcc": "xDU",
	"curl": "HXuAe", "kubectl": "nl", "docker": "e",
	"sudo": "ughpCDRT", "env": "u", "nice": "n", "timeout": "sk", "xargs": "nIPdLsE", "ionice": "cnp",
	"stdbuf": "ioe",
	"exec":   "a", "watch": "n", "doas": "uC", "setpriv": "", "strace": "eosp", "chroot": "", "time": "fo",
	"runuser": "ug", "flock": "wE", "chrt": "TPD", "setarch": "", "tr": "", "jq": "",
}

// baseOptions are the options by which a program works in another directory.
var baseOptions = map[string]string{
	"tar": "C directory", "make": "C directory", "gmake": "C directory", "git": "C work-tree", "ninja": "C",
	"bsdtar": "C directory", "env": "C chdir",
}

// fileOptions are those whose value is a file, also without a slash in it.
var fileOptions = map[string]string{
	"tar": "f file", "bsdtar": "f file", "curl": "d F data data-binary data-urlencode data-ascii form json",
	"kubectl": "f filename", "xargs": "a arg-file", "wget": "i input-file",
}

// gluedOptions are options of more than one letter to which a path is glued.
var gluedOptions = []string{"-isystem", "-iquote", "-idirafter", "-isysroot", "-include", "-imacros"}

// objectPrograms name things that look like relative paths and are none, as deploy/api.
var objectPrograms = set("kubectl oc gh docker podman helm brew")

// remotePrograms take host:path.
var remotePrograms = set("scp rsync sftp")

// textPrograms print their arguments.
var textPrograms = set("echo printf")

// findPatterns are the tests of find(1) whose value is a pattern of paths.
var findPatterns = set("-path -ipath -wholename -iwholename -regex -iregex -lname -ilname")

// findNames are those whose value is a pattern of names; findActs do something with what is found.
var (
	findNames = set("-name -iname")
	findActs  = set("-delete -exec -execdir -ok -okdir")
)

// patternOptions are options whose value is a pattern of names, of any program that has them.
var patternOptions = set("--exclude --exclude-dir --include --glob --iglob --ignore")

// gitLooks are the verbs of git whose operands choose among what it tracks (git(1)).
var gitLooks = set("log diff show status blame annotate shortlog whatchanged grep ls-files ls-tree rev-list check-ignore check-attr")

// wrappers run the command that is in their operands, after this many others.
var wrappers = map[string]int{
	"sudo": 0, "doas": 0, "env": 0, "nice": 0, "nohup": 0, "time": 0, "timeout": 1, "command": 0,
	"builtin": 0, "exec": 0, "setsid": 0,
	"stdbuf": 0, "ionice": 0, "xargs": 0, "busybox": 0, "toybox": 0, "watch": 0, "strace": 0, "ltrace": 0,
	"unshare": 0, "chroot": 1,
	"parallel": 0, "unbuffer": 0, "script": 0, "catchsegv": 0, "setpriv": 0, "taskset": 1, "chrt": 1,
	"prlimit": 0, "flock": 1,
	"su": 0, "runuser": 0, "pkexec": 0, "systemd-run": 0, "systemd-inhibit": 0, "nsenter": 0, "fakeroot": 0,
	"eatmydata": 0,
	"rlwrap":    0, "valgrind": 0, "setarch": 0, "linux64": 0, "linux32": 0,
	"dbus-run-session": 0, "bwrap": 0,
}

// longValues are the long options of wrappers that are followed by a value.
var longValues = map[string]map[string]bool{
	"timeout": set("signal kill-after"), "nice": set("adjustment"), "env": set("unset"),
	"sudo":  set("user group host prompt chdir"),
	"xargs": set("delimiter max-args max-procs max-lines max-chars"), "stdbuf": set("input output error"),
	"ionice": set("class classdata pid"), "runuser": set("user group"), "taskset": set("pid"),
	"flock": set("timeout wait"),
}

// commandOptions are the options of wrappers that are followed by a script.
var commandOptions = map[string]string{
	"env": "-S --split-string", "su": "-c --command", "runuser": "-c --command", "script": "-c --command",
	"flock": "-c --command",
}

var shells = set("sh bash dash ash zsh ksh rbash mksh")

// fileTests are the operators of test that are followed by a file.
const fileTests = "abcdefghkprstuwxGLNOS"
