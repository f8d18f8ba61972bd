package plan

// PlainShell is the variable that makes [Bashrc] skip the chat's own ~/.bashrc: a file that
// ends its shell would lock the chat out of its home.
const PlainShell = "CHATD_PLAIN"

// ShellArgv is the shell of a session. No file of the chat's runs before
// [Bashrc], and Bashrc itself runs confined.
func ShellArgv() []string {
	return []string{"/bin/bash", "--noprofile", "--rcfile", InsideBashrc, "-i"}
}

// KeptTerminal is the file, as a word for sh, in which a terminal is written down when its chat is
// put to sleep (Terminal.Keep of package tmux). It is the chat's, and is emptied when it has been read.
const KeptTerminal = `"$XDG_STATE_HOME/chatd-terminal"`

// keptText bounds what is shown again, in characters.
const keptText = "500000"

// Bashrc is the content of [InsideBashrc]. It reads the chat's own ~/.bashrc, then puts a hook
// before the PROMPT_COMMAND that this file set. Just before the first prompt the hook writes one
// byte to the fifo [InsidePrompt] and removes itself. It opens the fifo for reading and writing,
// so that the write does not block without a reader (fifo(7)). A missing fifo is not an error.
//
// A second, permanent hook marks prompts and commands with OSC 133 ("semantic prompt"), so that
// a client that types can tell that a command has ended, and how. It adds its marks to any PS0
// and PS1 that the chat sets; a chat that unsets the hook has no marks. PS2 has marks of its own,
// for an incomplete line.
//
// The first shell of a session begins as the last one ended, if the chat slept: in its directory and
// size, and with its text shown again ([KeptTerminal]). The log of the terminal, which has that text
// already, gets nothing of it: the pane's pipe is closed meanwhile. The shell holds the log's fifo
// open until the next writer has it, because its reader takes the end of the last writer for the end
// of the log. The terminal answers a query (DSR 6) when it has read all before it.
//
// An exclamation mark is text (set +H): bash drops a line with one that
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
__chatd_again() {
	local f=` + KeptTerminal + ` size dir text
	[ -n "$TMUX" ] && [ -f "$f" ] && [ -s "$f" ] && [ -O "$f" ] || return
	{
		read -r size
		IFS= read -r -d '' -n 4096 dir
		IFS= read -r -d '' -n ` + keptText + ` text
	} 2>/dev/null <"$f"
	: >|"$f"
	[[ $size =~ ^[1-9][0-9]{0,3}\ [1-9][0-9]{0,3}$ ]] || return
	local fifo= tmux=/usr/bin/tmux gone='is not there any more: this shell begins at home'
	[ -p ` + InsideLog + ` ] && exec {fifo}<>` + InsideLog + `
	$tmux resize-window -x "${size% *}" -y "${size#* }" \; set-option -wu window-size \; \
		pipe-pane 2>/dev/null
	printf '%s\n' "${text%"${text##*[!$'\n']}"}" \
		"[chatd: the chat slept; above is what its terminal showed before]"
	IFS= read -rs -d R -t 5 -p $'\e[6n' text
	if [ -n "$fifo" ]; then
		$tmux pipe-pane \
			"exec 9<>` + InsideLog + `; $tmux -S ${TMUX%%,*} wait-for -S chatd-again; ` + LogCommand + `"
		/usr/bin/timeout 5 $tmux wait-for chatd-again || echo "[chatd: no log of this terminal]"
		exec {fifo}>&-
	fi
	[ "$dir" = "$PWD" ] || cd -P -- "$dir" 2>/dev/null || printf '[chatd: %q %s]\n' "$dir" "$gone"
}
__chatd_again
unset -f __chatd_again
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
