# shellcheck shell=sh disable=SC2154 # the variables are install.sh's
# What the installer says, and how it gives up: expected, found, remedy, and what to run again.

say() {
  printf '%s\n' "$*"
}

# quoted TEXT: TEXT as one word of a shell command, quoted only where it has to be.
quoted() {
  case $1 in
    *[!A-Za-z0-9_./+=:@%-]*) printf "'%s'" "$(printf '%s' "$1" | sed "s/'/'\\\\''/g")" ;;
    *) printf '%s' "$1" ;;
  esac
}

# again [OPTION]: the command that goes on from here.
again() {
  printf 'sh %s%s' "$(quoted "$tree/termux/install.sh")" "${options:-}${1:+ $1}"
}

# fail SENTENCE [OPTION]: says it and what to run again (with OPTION), and ends with 1.
fail() {
  printf 'install.sh: %s Then run again: %s\n' "$1" "$(again "${2:-}")" >&2
  exit 1
}

# refuse SENTENCE: says why this can't be the place, and ends with 1.
refuse() {
  printf 'install.sh: %s\n' "$1" >&2
  exit 1
}
