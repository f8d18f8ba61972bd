package shims

// PlainShell is the variable that makes [Bashrc] skip the chat's own ~/.bashrc: a file that
// ends its shell would lock the chat out of its home.
const PlainShell = "CHATD_PLAIN"

// ShellArgv is the shell of a session. No file of the chat's runs before
// [Bashrc], and Bashrc itself runs confined.
func ShellArgv() []string {
	return []string{"/bin/bash", "--noprofile", "--rcfile", InsideBashrc, "-i"}
}

// Bashrc is the content of [InsideBashrc]. It reads the chat's own ~/.bashrc, then puts a hook
// before the PROMPT_COMMAND that this file set. Just before the first prompt the hook writes one
// byte to the fifo [InsidePrompt] and removes itself. It opens the fifo for reading and writing,
// so that the write does not block without a reader (fifo(7)). A missing fifo is no error.
//
// A second, permanent hook marks prompts and commands with OSC 133 ("semantic prompt"), so that
// a client that types can tell that a command has ended, and how. It adds its marks to any PS0
// and PS1 that the chat sets; a chat that unsets the hook has no marks. PS2 has marks of its own,
// for an incomplete line. An exclamation mark is text (set +H): bash drops a line with one that
// it cannot expand, and prints its prompt again without running the hook.
const Bashrc = `# Written by chatd. Your own settings belong in ~/.bashrc, which this file reads.
PS1='\u:\w\$ '
HISTFILE=~/.bash_history
HISTSIZE=1000
HISTFILESIZE=2000
HISTCONTROL=ignoredups
PS2='\[\e]133;A;k=s\a\]> \[\e]133;B\a\]'
shopt -s checkwinsize
set +H
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
__chatd_marks() {
	printf '\e]133;D;%s\a\e]133;A\a' "$?"
	case $PS1 in *'133;B'*) ;; *) PS1+='\[\e]133;B\a\]' ;; esac
	case $PS0 in *'133;C'*) ;; *) PS0+='\e]133;C\a' ;; esac
}
PROMPT_COMMAND=(__chatd_prompt "${PROMPT_COMMAND[@]}" __chatd_marks)
`
