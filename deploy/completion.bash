# Completion for bash of `roost`, `roostd` and `roost-worker`: the commands, the options and the
# values that their --help names.
# shellcheck shell=bash

# What --help of the command prints, an option a line.
_roost_help() { ARGP_HELP_FMT=rmargin=1000 "$@" --help 2>/dev/null; }

_roost_options() { # word, command…
    local word=$1 values
    shift
    if [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_roost_help "$@" | grep -o -- '--[a-z-]\+' | sort -u)" -- "$word")
        return
    fi
    # Behind `--log-level`, or `--log-level =`: the values that the help lists, separated by bars.
    local option=${COMP_WORDS[COMP_CWORD - 1]}
    [ "$option" = '=' ] && option=${COMP_WORDS[COMP_CWORD - 2]}
    [ "$word" = '=' ] && option=${COMP_WORDS[COMP_CWORD - 1]} word=''
    values=$(_roost_help "$@" | sed -nE "s/^.* $option=([a-z0-9-]+(\|[a-z0-9-]+)+).*/\1/p" | tr '|' ' ')
    [ -n "$values" ] && mapfile -t COMPREPLY < <(compgen -W "$values" -- "$word")
}

_roost() {
    local word=${COMP_WORDS[COMP_CWORD]}
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "$(roost --help 2>/dev/null | sed -n 's/^  \([a-z]\+\) .*/\1/p')" -- "$word")
    else
        _roost_options "$word" roost "${COMP_WORDS[1]}"
    fi
}
_roost_daemon() { _roost_options "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[0]}"; }
complete -o default -F _roost roost
complete -o default -F _roost_daemon roostd roost-worker
