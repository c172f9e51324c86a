# Completion for bash of `roost`, `roostd` and `roost-worker`: the commands, the options and the
# values that their --help names, and the keys of --set. In zsh, before this file is sourced:
#   autoload -U +X compinit bashcompinit && compinit && bashcompinit
# shellcheck shell=bash

# What --help of the command prints, an option a line.
_roost_help() { ARGP_HELP_FMT=rmargin=1000 "$@" --help 2>/dev/null; }

# The spec's keys, of its reference: installed, in a bundle, or beside a build.
_roost_keys() {
    local folder reference
    folder=$(dirname "$(readlink -f "$(command -v roost)")")
    # shellcheck disable=SC2016 # the reference has backquotes
    for reference in "$folder"/../share/doc/roost "$folder"/.. "$folder"/../../..; do
        [ -f "$reference/docs/spec.md" ] && sed -nE 's/^\| `([a-z_.]+)`.*/\1=/p' "$reference/docs/spec.md" && return
    done
}

# Those of the words that begin with `word`.
_roost_choose() { # word words…
    local chosen
    while IFS= read -r chosen; do
        COMPREPLY+=("$chosen")
    done < <(compgen -W "$2" -- "$1")
}

_roost_options() { # word, command…
    local word=$1 option=${COMP_WORDS[COMP_CWORD - 1]}
    shift
    if [[ $word == -* ]]; then
        _roost_choose "$word" "$(_roost_help "$@" | grep -o -- '--[a-z-]\+' | sort -u)"
        return
    fi
    # Behind `--log-level`, or `--log-level =`: the values that the help lists, separated by bars.
    [ "$option" = '=' ] && option=${COMP_WORDS[COMP_CWORD - 2]}
    [ "$word" = '=' ] && option=${COMP_WORDS[COMP_CWORD - 1]} word=''
    if [[ $option == --set || $option == -s ]]; then
        compopt -o nospace 2>/dev/null # zsh has none
        _roost_choose "$word" "$(_roost_keys)"
        return
    fi
    _roost_choose "$word" "$(_roost_help "$@" | sed -nE "s/^.* $option=([a-z0-9-]+(\|[a-z0-9-]+)+).*/\1/p" | tr '|' ' ')"
}

_roost() {
    local word=${COMP_WORDS[COMP_CWORD]}
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        _roost_choose "$word" "$(roost --help 2>/dev/null | sed -n 's/^  \([a-z]\+\) .*/\1/p')"
    else
        _roost_options "$word" roost "${COMP_WORDS[1]}"
    fi
}
_roost_daemon() {
    COMPREPLY=()
    _roost_options "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[0]}"
}
complete -o default -F _roost roost
complete -o default -F _roost_daemon roostd roost-worker
