#!/bin/sh
# lorad's launcher. install.sh writes it to $PREFIX/bin/lorad with this phone's paths before it.
# It starts no Python of its own: a service that is restarted every second calls it each time.
# Exit code 69 (EX_UNAVAILABLE): the Python environment is dead, and installing again mends it.
set -eu

program=${program:-$HOME/.local/lib/lorad}
python=${python:-$PREFIX/bin/python3}
venv=$program/venv

# dead FOUND: one sentence with the remedy, to be pasted as it stands.
dead() {
  tree=
  [ ! -r "$program/tree" ] || IFS= read -r tree < "$program/tree" || :
  printf "lorad: expected a Python environment made for %s, found %s: run sh '%s/termux/install.sh', which makes it anew and keeps all data\n" \
    "${now:-$python}" "$1" "$(printf '%s' "$tree" | sed "s/'/'\\\\''/g")" >&2
  exit 69
}

now=$(readlink -f "$python") || now=
[ -x "$now" ] || dead "no Python there"

made_for=
if [ -r "$venv/pyvenv.cfg" ]; then
  while IFS= read -r line; do
    case $line in "executable = "*) made_for=${line#executable = } ;; esac
  done < "$venv/pyvenv.cfg"
fi
[ -n "$made_for" ] || dead none
[ "$made_for" = "$now" ] || dead "one made for $made_for"
[ -x "$venv/bin/python" ] || dead "one whose own Python is gone"
[ -f "$venv/bin/lorad" ] || dead "one without lorad"

# The phone's own commands, battery and notification, lie beside Python.
case ":${PATH:-}:" in
  *":${python%/*}:"*) ;;
  *) export PATH="${python%/*}${PATH:+:$PATH}" ;;
esac
exec "$venv/bin/python" "$venv/bin/lorad" "$@"
