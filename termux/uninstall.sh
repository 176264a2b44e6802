#!/bin/sh
# Takes lorad off: the service, the command and the program folder.
#
#   sh termux/uninstall.sh                 the data, the settings and pkg's packages stay
#   sh termux/uninstall.sh --delete-data   also the data, after asking; names the folder
set -eu

tree=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P)
delete_data=no
for option in "$@"; do
  case $option in
    --delete-data) delete_data=yes ;;
    -h | --help)
      sed -n '2,/^set -eu/s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    *)
      printf 'uninstall.sh: expected --delete-data or nothing, found %s: see sh uninstall.sh --help\n' "$option" >&2
      exit 2
      ;;
  esac
done

# refuse SENTENCE: says why nothing more is removed.
refuse() {
  printf 'uninstall.sh: %s\n' "$1" >&2
  exit 1
}

# contains_home: whether deleting the data would delete all of $HOME.
contains_home() {
  case $(CDPATH='' cd -- "$HOME" && pwd -P)/ in
    "$(CDPATH='' cd -- "$data" && pwd -P)"/*) true ;;
    *) false ;;
  esac
}

case ${HOME:-} in
  /?*) ;;
  *) refuse "Expected \$HOME to be a folder, found '${HOME:-}': set it." ;;
esac
program=$HOME/.local/lib/lorad
prefix=${PREFIX:-/usr/local}
launcher=$prefix/bin/lorad

# The service's settings may name another home than the shell's. They are read, never run as shell.
env_file=$HOME/.config/lorad/env
if [ -r "$env_file" ]; then
  # shellcheck source=termux/service/settings.sh
  named=$(. "$tree/termux/service/settings.sh"; broken_line() { :; }; read_settings "$env_file"; printf '%s' "${LORAD_HOME:-}")
  [ -z "$named" ] || LORAD_HOME=$named
fi
data=${LORAD_HOME:-$HOME/.local/share/lorad}

# The service goes first: it would go on starting a command that is no longer there.
service=no
for part in "$prefix/var/service/lorad" "$prefix/var/service/.lorad.gone" \
  "$HOME/.termux/boot/lorad" "$program/heartbeat.sh"; do
  [ ! -e "$part" ] || service=yes
done
if [ "$service" = yes ]; then
  sh "$tree/termux/service.sh" uninstall \
    || refuse "Expected the service to be taken out, found the error above: see what it says, and run this again. Nothing else was removed."
  printf 'Removed: the service\n'
fi
if [ -e "$launcher" ]; then
  if grep -q "^# lorad's launcher" "$launcher"; then
    rm -f "$launcher"
    printf 'Removed: %s\n' "$launcher"
  else
    printf "Left alone, since it isn't lorad's launcher: %s\n" "$launcher"
  fi
fi
if [ -e "$program" ]; then
  rm -rf "$program"
  printf 'Removed: %s\n' "$program"
fi

if [ ! -d "$data" ]; then
  printf 'There is no data in %s\n' "$data"
elif [ "$delete_data" = no ]; then
  printf 'Your data stays: %s (sh uninstall.sh --delete-data deletes it)\n' "$data"
elif [ ! -f "$data/lorad.db" ]; then
  refuse "Expected lorad's data in $data, found no lorad.db there: nothing of it was deleted; look at the folder, and delete it yourself."
elif contains_home; then
  refuse "Expected a folder of lorad's own, found that $data holds \$HOME: nothing of it was deleted; delete lorad's files there yourself."
else
  printf 'Delete %s with all examples, adapters and base models, for good? Type yes: ' "$data"
  answer=
  IFS= read -r answer || :
  if [ "$answer" = yes ]; then
    rm -rf "$data"
    printf 'Deleted: %s\n' "$data"
  else
    printf 'Your data stays: %s\n' "$data"
  fi
fi
printf "Packages of Termux's stay; pkg uninstall removes those you don't need.\n"
