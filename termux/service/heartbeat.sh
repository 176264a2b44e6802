#!/bin/sh
# Termux's job scheduler runs this every 15 minutes, since Android kills what it likes: it makes sure
# that lorad is supervised again, unless somebody wanted it down, and has it look whether it is time to
# train. What was done stands in heartbeat.last.
#
#   sv-disable lorad        the file `down` is there: it stays down
#   sv down lorad           supervise/stat says "down", and `finish` hasn't said gave-up: it stays down.
#                           Only this script heeds that: whatever starts runsvdir again starts lorad, too
#   service-daemon stop     there is no supervise/stat: everything stays down
#   anything else           was Android, or a crash: it shall run
set -eu
umask 077
: "${PREFIX:=/data/data/com.termux/files/usr}" "${HOME:=/data/data/com.termux/files/home}"
PATH="$PREFIX/bin${PATH:+:$PATH}"
SVDIR="$PREFIX/var/service"
LOGDIR="$PREFIX/var/log"
export PREFIX HOME PATH SVDIR LOGDIR

program="$HOME/.local/lib/lorad"
service="$SVDIR/lorad"
limit=5    # seconds, for each call
patience=8 # seconds: runsvdir looks every five for what it has to start

# The lock is the kernel's: it can't be left behind by a kill. A second heartbeat ends at once. Without
# runit's chpst it goes without: two of them only do the same twice.
if [ "${1-}" != locked ] && command -v chpst > /dev/null; then
  exec chpst -L "$program/heartbeat.lock" sh "$0" locked 2> /dev/null
fi

record() {
  printf '%s %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$1" > "$program/heartbeat.last" || :
  exit 0
}

# Nothing that hangs may stay: the command and all that it started are killed together. Descriptor 3
# is the lock, which nothing that outlives this script may hold.
bounded() { timeout -s KILL "$limit" "$@" > /dev/null 2>&1 3>&- < /dev/null; }

# Has the daemon look at once whether a window is open: the phone may be awake for a moment only. Not if
# it began within the last minute: it looks by itself then, and can't take the signal at first.
nudge() {
  what='' since=''
  read -r what since _ < "$service/begun" || :
  case $since in '' | *[!0-9]*) return 0 ;; esac
  [ "$state $what" = "run daemon" ] || return 0
  [ $(($(date +%s) - since)) -lt 60 ] || bounded sv 1 lorad || :
}

[ -d "$service" ] || record "not installed"
[ ! -e "$service/down" ] || record "disabled"
[ -r "$service/supervise/stat" ] || record "all services were stopped"
state=
read -r state < "$service/supervise/stat" || :
if [ "$state" = down ] && [ ! -e "$service/gave-up" ]; then
  record "was told to be down"
fi
if bounded sv status lorad; then
  if [ "$state" != down ]; then
    nudge
    record "runs"
  fi
  bounded sv up lorad || record "could not be started again"
  record "was started again after giving up"
fi
bounded service-daemon start || : # it fails if runsvdir runs, which then is about to start ours
tries=$((patience * 5))
until bounded sv status lorad; do
  [ "$tries" -gt 0 ] || record "is not supervised, and service-daemon start did not help"
  tries=$((tries - 1))
  sleep 0.2
done
record "was started again"
