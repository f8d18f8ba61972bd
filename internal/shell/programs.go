package shell

import (
	"strings"
)

// Set is the words of s.
func Set(s string) map[string]bool {
	m := map[string]bool{}
	for name := range strings.FieldsSeq(s) {
		m[name] = true
	}
	return m
}

// pairs are the key:value of s.
func pairs(s string) map[string]string {
	m := map[string]string{}
	for pair := range strings.FieldsSeq(s) {
		key, value, _ := strings.Cut(pair, ":")
		m[key] = value
	}
	return m
}

// filePrograms take files as their operands, also without a slash in them.
var filePrograms = Set(`cat tac nl less more most head tail wc sort uniq cut paste join comm split
	csplit tee tr cp mv rm ln link unlink mkdir rmdir touch chmod chown chgrp chattr stat file du df ls
	dir vdir tree install truncate shred dd readlink realpath namei diff diff3 sdiff cmp patch od xxd
	hexdump hd strings base64 base32 basenc iconv column fold fmt md5sum sha1sum sha224sum sha256sum
	sha384sum sha512sum b2sum cksum sum gzip gunzip zcat bzip2 bunzip2 bzcat xz unxz xzcat zstd unzstd
	zstdcat zip unzip tar cpio ar rsync scp vi vim nvim view nano ed emacs bat sed awk gawk mawk nawk
	grep egrep fgrep zgrep rg ag jq yq cc gcc g++ c++ clang clang++ tcc perl python python2 python3 ruby
	node php lua source . mkfifo mknod setfacl getfacl setfattr getfattr mapfile expand unexpand rev
	shuf tsort pr look xmllint sqlite3 cd pushd chdir mktemp rename gpg age openssl`)

// firstIsText are programs whose first operand is an expression or a mode and no
// file, unless an option gave it.
var firstIsText = Set(`sed awk gawk mawk nawk grep egrep fgrep zgrep rg ag jq yq chmod chown chgrp tr
	chattr look rename setfacl`)

// scriptOptions are the programs of firstIsText and interpreters whose options have a script:
// letter by letter. The word after such an option is not a file.
var scriptOptions = pairs(`sed:e grep:e egrep:e fgrep:e zgrep:e rg:e perl:eEnIM python:cm python2:cm
	python3:cm ruby:e node:ep php:r lua:e`)

// valueOptions are options that are followed by something that is not a file.
var valueOptions = pairs(`head:nc tail:nc grep:ABCm egrep:ABCm fgrep:ABCm rg:ABCmgt cut:dfbc sort:kt
	split:bln uniq:fsw paste:d join:t12j fold:w fmt:w awk:Fv gawk:Fv mawk:Fv od:AtNjw xxd:lsc
	hexdump:ens strings:n install:mog mkdir:m truncate:s du:d tree:LIP column:st base64:w less:x nl:bnw
	iconv:ft mknod:m touch:dt stat:c cc:xDU gcc:xDU g++:xDU c++:xDU clang:xDU clang++:xDU tcc:xDU
	curl:HXuAe kubectl:nl docker:e sudo:ughpCDRT env:u nice:n timeout:sk xargs:nIPdLsE ionice:cnp
	stdbuf:ioe exec:a watch:n doas:uC strace:eosp time:fo runuser:ug flock:wE chrt:TPD`)

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
var objectPrograms = Set("kubectl oc gh docker podman helm brew")

// remotePrograms take host:path.
var remotePrograms = Set("scp rsync sftp")

// findPatterns are the tests of find(1) whose value is a pattern of paths.
var findPatterns = Set("-path -ipath -wholename -iwholename -regex -iregex -lname -ilname")

// findNames are those whose value is a pattern of names; findActs do something with what is found.
var (
	findNames = Set("-name -iname")
	findActs  = Set("-delete -exec -execdir -ok -okdir")
)

// patternOptions are options whose value is a pattern of names, of any program that has them.
var patternOptions = Set("--exclude --exclude-dir --include --glob --iglob --ignore")

// gitLooks are the verbs of git whose operands choose among what it tracks (git(1)).
var gitLooks = Set(`log diff show status blame annotate shortlog whatchanged grep ls-files ls-tree
	rev-list check-ignore check-attr`)

// wrappers run the command that is in their operands.
var wrappers = Set(`sudo doas env nice nohup time command builtin exec setsid stdbuf ionice xargs
	busybox toybox watch strace ltrace unshare parallel unbuffer script catchsegv setpriv prlimit su
	runuser pkexec systemd-run systemd-inhibit nsenter fakeroot eatmydata rlwrap valgrind setarch
	linux64 linux32 dbus-run-session bwrap timeout chroot taskset chrt flock`)

// secondIsCommand are the wrappers that have another operand before the command.
var secondIsCommand = Set("timeout chroot taskset chrt flock")

// longValues are the long options of wrappers that are followed by a value.
var longValues = map[string]map[string]bool{
	"timeout": Set("signal kill-after"), "nice": Set("adjustment"), "env": Set("unset"),
	"sudo":  Set("user group host prompt chdir"),
	"xargs": Set("delimiter max-args max-procs max-lines max-chars"), "stdbuf": Set("input output error"),
	"ionice": Set("class classdata pid"), "runuser": Set("user group"), "taskset": Set("pid"),
	"flock": Set("timeout wait"),
}

// commandOptions are the options of wrappers that are followed by a script.
var commandOptions = map[string]string{
	"env": "-S --split-string", "su": "-c --command", "runuser": "-c --command", "script": "-c --command",
	"flock": "-c --command",
}

// Shells are the programs that read a script as [Calls] does.
const Shells = "sh bash dash ash zsh ksh rbash mksh"

var shells = Set(Shells)

// textTests are the operators of [[ ]] that are followed by no file.
var textTests = Set("-z -n -v -o -t !")

// fileTests are the operators of test that are followed by a file.
const fileTests = "abcdefghkprstuwxGLNOS"
