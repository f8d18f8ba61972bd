package shims

// PlainShell is the variable that tells [Bashrc] to leave the chat's own file out:
// one that ends its shell would lock the chat out of its own home for good.
const PlainShell = "CHATD_PLAIN"

// ShellArgv is the shell of a session. No file of the chat's runs before
// [Bashrc], and Bashrc itself runs confined.
func ShellArgv() []string {
	return []string{"/bin/bash", "--noprofile", "--rcfile", InsideBashrc, "-i"}
}

// Bashrc is the content of [InsideBashrc]. It reads the chat's own ~/.bashrc,
// then puts a hook before whatever PROMPT_COMMAND that left: just before the
// first prompt one byte goes into the fifo [InsidePrompt], and the hook removes
// itself. The fifo is opened for reading and writing, so that nothing blocks
// when nobody listens (fifo(7)); a fifo that is not there is no error.
const Bashrc = `# Written by chatd. Your own settings belong in ~/.bashrc, which this file reads.
PS1='\u:\w\$ '
HISTFILE=~/.bash_history
HISTSIZE=1000
HISTFILESIZE=2000
HISTCONTROL=ignoredups
shopt -s checkwinsize
if [ -n "${` + PlainShell + `-}" ]; then
	echo "chatd: left ~/.bashrc out, with which this shell ended before its prompt"
elif [ -r ~/.bashrc ]; then
	. ~/.bashrc
fi
__chatd_prompt() {
	[ -p ` + InsidePrompt + ` ] && { printf . 1<>` + InsidePrompt + `; } 2>/dev/null
	unset -f __chatd_prompt
	PROMPT_COMMAND=("${PROMPT_COMMAND[@]:1}")
}
PROMPT_COMMAND=(__chatd_prompt "${PROMPT_COMMAND[@]}")
`
