"""`reprieve completion`: what a shell needs to complete our commands."""

from __future__ import annotations

from reprieve.cli.spec import Argument, Command, Parsed
from reprieve.cli.terminal import Terminal

SHELLS = ("bash", "zsh", "fish", "powershell")

SPEC = Command(
    "completion",
    "Print a script that makes a shell complete commands, options and ids",
    (
        ('eval "$(reprieve completion bash)"', "for this bash; put it into ~/.bashrc to keep it"),
        ("reprieve completion fish > ~/.config/fish/completions/reprieve.fish", "for every fish from now on"),
    ),
    details="The scripts ask `reprieve` itself, so they know the commands of the version that is installed.",
    arguments=(Argument("SHELL", "The shell", is_required=True, choices=SHELLS),),
)

# Each asks `reprieve __complete WORDS…`: one candidate per line, a tab, its meaning. A line ":files" asks for
# file names as the shell itself completes them; ":commands" for those of programs.
SCRIPTS = {
    "bash": """\
_reprieve() {
    local cur=${COMP_WORDS[COMP_CWORD]} line IFS=$'\\n'
    COMPREPLY=()
    for line in $(reprieve __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null); do
        case $line in
            :files) COMPREPLY+=($(compgen -f -- "$cur")); compopt -o filenames 2>/dev/null ;;
            :commands) COMPREPLY+=($(compgen -c -- "$cur")) ;;
            *) COMPREPLY+=("${line%%$'\\t'*}") ;;
        esac
    done
}
complete -F _reprieve reprieve
""",
    "zsh": """\
#compdef reprieve
_reprieve() {
    local line; local -a candidates
    for line in "${(@f)$(reprieve __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        case $line in
            '') ;;
            :files) _files ;;
            :commands) _command_names ;;
            *) candidates+=("${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}") ;;
        esac
    done
    (( $#candidates )) && _describe -V reprieve candidates
}
if [[ $funcstack[1] == _reprieve ]]; then _reprieve "$@"; else compdef _reprieve reprieve; fi
""",
    "fish": """\
function __reprieve_complete
    set -l words (commandline -opc) (commandline -ct)
    for line in (reprieve __complete -- $words[2..-1] 2>/dev/null)
        switch $line
            case :files
                __fish_complete_path (commandline -ct)
            case :commands
                __fish_complete_command
            case '*'
                echo $line
        end
    end
end
complete -c reprieve -f -k -a '(__reprieve_complete)'
""",
    "powershell": """\
Register-ArgumentCompleter -Native -CommandName reprieve -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $words = @($commandAst.CommandElements | Select-Object -Skip 1 | ForEach-Object { "$_" })
    if ($wordToComplete -eq '') { $words += '""' }
    reprieve __complete -- @words 2>$null | ForEach-Object {
        if ($_ -eq ':files' -or $_ -eq ':commands') {
            [System.Management.Automation.CompletionCompleters]::CompleteFilename($wordToComplete)
        } else {
            $name, $meaning = $_ -split "`t", 2
            if (-not $meaning) { $meaning = $name }
            [System.Management.Automation.CompletionResult]::new($name, $name, 'ParameterValue', $meaning)
        }
    }
}
""",
}


def run(args: Parsed, out: Terminal) -> int:
    script = SCRIPTS[args.text("SHELL")]
    out.answer(shell=args.text("SHELL"), script=script)
    out.line(script.rstrip("\n"))
    return 0
