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
    [[ $option == -* ]] || return 0 # a path may have what sed reads as its own
    _roost_choose "$word" "$(_roost_help "$@" | sed -nE "s/^.* $option=([a-z0-9-]+(\|[a-z0-9-]+)+).*/\1/p" | tr '|' ' ')"
}

# What the command is told to do, by the first word behind it: its help lists commands or actions.
_roost_actions() { _roost_help "$@" | sed -n 's/^  \([a-z]\+\) .*/\1/p'; }

_roost() {
    local word=${COMP_WORDS[COMP_CWORD]} command=(roost) place=1 actions
    COMPREPLY=()
    while [ "$place" -lt "$COMP_CWORD" ] && _roost_actions "${command[@]}" | grep -qxF -- "${COMP_WORDS[place]}"; do
        command+=("${COMP_WORDS[place]}")
        place=$((place + 1))
    done
    actions=$(_roost_actions "${command[@]}")
    if [ "$place" -eq "$COMP_CWORD" ] && [ -n "$actions" ] && [[ $word != -* ]]; then
        _roost_choose "$word" "$actions"
    else
        _roost_options "$word" "${command[@]}"
    fi
}
_roost_daemon() {
    COMPREPLY=()
    _roost_options "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[0]}"
}
complete -o default -F _roost roost
complete -o default -F _roost_daemon roostd roost-worker
