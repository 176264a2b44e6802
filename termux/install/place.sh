# shellcheck shell=sh disable=SC2154 # the variables are install.sh's
# Where everything lies, and the program folder.

find_places_in_termux() {
  if [ -z "${PREFIX:-}" ] || [ -z "${TERMUX_VERSION:-}" ] || [ ! -x "$PREFIX/bin/pkg" ]; then
    refuse "Expected Termux, found no \$PREFIX/bin/pkg or no \$TERMUX_VERSION: run this in the app Termux; inside a Debian or Ubuntu of proot-distro use --proot, on a computer 'make setup'."
  fi
  prefix=$PREFIX
  python=$prefix/bin/python3
  find_places
}

find_places_in_proot() {
  if [ -n "${TERMUX_VERSION:-}" ] && [ -n "${PREFIX:-}" ] && [ -x "$PREFIX/bin/pkg" ]; then
    refuse "Expected a Debian or Ubuntu of proot-distro, found Termux itself: run 'pkg install proot-distro', 'proot-distro install debian', 'proot-distro login debian', and in there this command on a copy of the project."
  fi
  if ! command -v apt-get > /dev/null; then
    refuse "Expected a Debian or Ubuntu, found no apt-get: install one with 'proot-distro install debian' and run this inside it."
  fi
  prefix=${PREFIX:-/usr/local}
  python=$(command -v python3) || python=/usr/bin/python3
  find_places
}

find_places() {
  case ${HOME:-} in
    /?*) ;;
    *) refuse "Expected \$HOME to be a folder, found '${HOME:-}': set it." ;;
  esac
  program=$HOME/.local/lib/lorad
  venv=$program/venv
}

# begin_program_folder: makes it, and writes down where this project lies, for the launcher.
begin_program_folder() {
  mkdir -p "$program"
  printf '%s\n' "$tree" > "$program/tree"
}

# packages_of_venv: the folder in which the environment's own packages lie.
packages_of_venv() {
  for folder in "$venv"/lib/python3*/site-packages; do
    printf '%s' "$folder"
  done
}

# python_now: the executable that python3 stands for, so `…/python3.14`; "none" if there is none.
python_now() {
  found=$(readlink -f "$python" 2> /dev/null) || found=
  if [ -n "$found" ] && [ -x "$found" ]; then
    printf '%s' "$found"
  else
    printf 'none'
  fi
}
