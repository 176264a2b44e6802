#!/bin/sh
# Installs lorad in Termux, from nothing to `lorad doctor`:
#
#   sh termux/install.sh                the phone's own route
#   sh termux/install.sh --check        says what it would do, and changes nothing
#   sh termux/install.sh --build        may compile what has no wheel (rust; long, more than 1 GB of memory)
#   sh termux/install.sh --play-store   goes on in the Termux of the Play Store
#   sh termux/install.sh --proot        inside a Debian or Ubuntu of proot-distro: the CPU only
#
# Run it again at any time: what is done and still right is skipped, what no longer is (Python moved,
# a package is gone, the project changed) is done again, and what failed goes on from there. It writes
# the program folder ~/.local/lib/lorad, $PREFIX/bin/lorad and the service; never the user's data.
# Not yet seen on a phone.
set -eu

tree=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P)
check=no build=no play_store=no proot=no options=
for option in "$@"; do
  case $option in
    --check) check=yes ;;
    --build) build=yes options="$options $option" ;;
    --play-store) play_store=yes options="$options $option" ;;
    --proot) proot=yes options="$options $option" ;;
    -h | --help)
      sed -n '2,/^set -eu/s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    *)
      printf 'install.sh: expected --check, --build, --play-store or --proot, found %s: see sh install.sh --help\n' \
        "$option" >&2
      exit 2
      ;;
  esac
done

# shellcheck source=termux/install/words.sh
. "$tree/termux/install/words.sh"
# shellcheck source=termux/install/state.sh
. "$tree/termux/install/state.sh"
# shellcheck source=termux/install/place.sh
. "$tree/termux/install/place.sh"
# shellcheck source=termux/install/phone.sh
. "$tree/termux/install/phone.sh"
# shellcheck source=termux/install/packages.sh
. "$tree/termux/install/packages.sh"
# shellcheck source=termux/install/proot.sh
. "$tree/termux/install/proot.sh"
# shellcheck source=termux/install/wheels.sh
. "$tree/termux/install/wheels.sh"
# shellcheck source=termux/install/imports.sh
. "$tree/termux/install/imports.sh"
# shellcheck source=termux/install/program.sh
. "$tree/termux/install/program.sh"

if [ "$proot" = yes ]; then
  find_places_in_proot
  look_at_proot
else
  find_places_in_termux
  look_at_phone
fi
look_at_storage
[ "$check" = yes ] || begin_program_folder

step upgrade "Bring all packages up to date"
step packages "Install the packages that are compiled for this system"
step venv "Make the Python environment"
step wheels "Install the Python packages at their pinned versions"
step lorad "Install lorad itself"
step imports "Import every package, one by one"
step launcher "Put the command lorad in place"
[ "$proot" = yes ] || step service "Put the service in place, switched off"
finish
