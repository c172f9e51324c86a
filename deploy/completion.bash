# Completion of `roost` for bash: the commands and options that its --help names.
# shellcheck shell=bash

_roost() {
    local word=${COMP_WORDS[COMP_CWORD]}
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "$(roost --help 2>/dev/null | sed -n 's/^  \([a-z]\+\) .*/\1/p')" -- "$word")
    elif [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(roost "${COMP_WORDS[1]}" --help 2>/dev/null |
            grep -o -- '--[a-z-]\+')" -- "$word")
    fi
}
complete -o default -F _roost roost
