"""`fairlead completion`: prints the script that completes commands, flags and names in a shell.

The scripts run `fairlead` on Tab, with the words so far in variables that Typer reads. They evaluate none of its output
and discard errors, which would garble the command line.

Names may contain characters that have a meaning in a shell, such as `;` and `$(`. zsh and fish quote what they insert,
bash does not.
"""

from enum import StrEnum
from typing import Annotated

import typer

BASH = r"""# Completion of fairlead for bash: source it, or put it into a folder of bash-completion as `fairlead`.
_fairlead_completion() {
    local line words
    words="$(IFS=$'\n'; printf '%s' "${COMP_WORDS[*]}")"
    COMPREPLY=()
    while IFS= read -r line; do
        printf -v line %q "$line"
        # The forms '' and $'...' would end quotes that the user has opened.
        [[ "$line" == [\$\']\'* ]] || COMPREPLY+=("$line")
    done < <(COMP_WORDS="$words" COMP_CWORD="$COMP_CWORD" _FAIRLEAD_COMPLETE=complete_bash "$1" 2>/dev/null)
}
complete -o default -F _fairlead_completion fairlead
"""
ZSH = r"""#compdef fairlead
# Completion of fairlead for zsh: put this file into a folder of $fpath as `_fairlead`, or source it after compinit.
_fairlead() {
    local line
    local -a entries
    while IFS= read -r line; do
        line="${line//\\/\\\\}"
        line="${line//:/\\:}"
        entries+=("${line/$'\t'/:}")
    done < <(_FAIRLEAD_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args \
        _TYPER_COMPLETE_ARGS="${words[1,CURRENT]}" "${words[1]}" 2>/dev/null)
    if [[ "${entries[*]}" != "" ]]; then _describe fairlead entries; else _files; fi
}
if [[ "${funcstack[1]}" == _fairlead ]]; then _fairlead "$@"; else compdef _fairlead fairlead; fi
"""
FISH = r"""# Completion of fairlead for fish: put this file into ~/.config/fish/completions as `fairlead.fish`.
function __fairlead_complete
    set --local program (commandline --tokenize --current-process)[1]
    set --local entries (_FAIRLEAD_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args \
        _TYPER_COMPLETE_ARGS=(commandline --cut-at-cursor --current-process | string collect) \
        $program 2>/dev/null | string match --regex '.+')
    if set --query entries[1]
        printf '%s\n' $entries
    else
        __fish_complete_path (commandline --current-token)
    end
end
complete --command fairlead --no-files --arguments '(__fairlead_complete)'
"""


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


SCRIPTS = {Shell.BASH: BASH, Shell.ZSH: ZSH, Shell.FISH: FISH}


def command(shell: Annotated[Shell, typer.Argument(help="The shell that the script is for.")]) -> None:
    """Print a script that completes commands, flags and names of objects in a shell.

    Names come from the server of the login. If it does not respond, nothing is completed.
    """
    typer.echo(SCRIPTS[shell], nl=False)
