#!/bin/sh
# The service of lorad: `sh termux/service.sh install | uninstall | status`.
#
# install     puts in place, or renews, what stands in termux/service: the runit service with its log,
#             disabled until `sv-enable lorad`; the script that Termux:Boot runs; the heartbeat, and its
#             job every 15 minutes. If the service runs, it is restarted.
# uninstall   takes all of that away again, once the daemon has ended. Data and settings stay.
# status      says what is there and what it does; exit code 3 if the daemon isn't running.
set -eu
umask 077
: "${PREFIX:=/data/data/com.termux/files/usr}" "${HOME:=/data/data/com.termux/files/home}"
PATH="$PREFIX/bin${PATH:+:$PATH}"
SVDIR="$PREFIX/var/service" # also where none or an empty one is set: sv-enable would use /
LOGDIR="$PREFIX/var/log"
export PREFIX HOME PATH SVDIR LOGDIR

tree=$(cd "$(dirname "$0")" && pwd)/service
service="$SVDIR/lorad"
gone="$SVDIR/.lorad.gone" # runsvdir doesn't look at names that begin with a dot
log="$LOGDIR/sv/lorad"
program="$HOME/.local/lib/lorad"
boot="$HOME/.termux/boot"
boot_mark="# lorad's boot script"
job=8765 # another job's number would replace that job
call_seconds=5
look_seconds=8  # runsvdir looks every five for what it has to start
stop_seconds=60 # the daemon gives its worker 30 for the last checkpoint
kill_seconds=5

say() { printf 'lorad: %s\n' "$1"; }
warn() { printf 'lorad: %s\n' "$1" >&2; }
fail() {
  warn "$1"
  exit "${2:-1}"
}

# A call that may hang: it is killed with all that it started. What it says goes into a file, since a
# pipe would be held open by whatever escapes. Its answer is in $answer.
bounded() {
  said=$(mktemp "${TMPDIR:-$PREFIX/tmp}/lorad.XXXXXX")
  code=0
  timeout -s KILL "$call_seconds" "$@" > "$said" 2>&1 < /dev/null || code=$?
  answer=$(cat "$said")
  rm -f "$said"
  return "$code"
}

have() { command -v "$1" > /dev/null 2>&1; }

# within SECONDS COMMAND…: whether it comes true in that time.
within() {
  tries=$(($1 * 5))
  shift
  until "$@"; do
    [ "$tries" -gt 0 ] || return 1
    tries=$((tries - 1))
    sleep 0.2
  done
}

is_supervised() { bounded sv status lorad; }

# place FILE AS MODE: never half written, since runsv may start it at any moment.
place() {
  { printf '#!%s/bin/sh\n' "$PREFIX" && tail -n +2 "$tree/$1"; } > "$2.new"
  chmod "$3" "$2.new"
  mv -f "$2.new" "$2"
}

install_service() {
  folder=$service
  if [ ! -e "$service" ]; then
    folder="$SVDIR/.lorad.new"
    rm -rf "$folder"
  fi
  mkdir -p "$folder/log"
  for file in run finish end-left-behind settings.sh; do place "$file" "$folder/$file" 700; done
  place log-run "$folder/log/run" 700
  if [ "$folder" != "$service" ]; then
    : > "$folder/down"
    mv "$folder" "$service"
  fi
}

install_boot() {
  mkdir -p "$boot"
  for entry in "$boot"/*; do
    if [ -d "$entry" ]; then
      warn "expected only files in $boot, found the folder $entry: Termux:Boot stops at it and runs nothing that sorts after it; move it away"
    fi
  done
  if [ -e "$boot/lorad" ] && ! grep -qxF "$boot_mark" "$boot/lorad"; then
    warn "expected lorad's own script in $boot/lorad, found another: it is left alone, and lorad won't start after boot; move it away and install again"
    return 0
  fi
  place boot "$boot/lorad" 700
}

# --network none: without it the job waits for a network. Charging isn't asked for: the daemon has to
# take examples by day, too, and a look costs nothing. A low battery is left in peace.
install_heartbeat() {
  mkdir -p "$program"
  place heartbeat.sh "$program/heartbeat.sh" 700
  have termux-job-scheduler || {
    warn "expected the command termux-job-scheduler, found none: nothing will start lorad again when Android has killed it; run: pkg install termux-api (and install the app Termux:API), then install again"
    return 0
  }
  bounded termux-job-scheduler --job-id "$job" --script "$program/heartbeat.sh" \
    --period-ms 900000 --network none --charging false --battery-not-low true --persisted true \
    || answer="failed ($code): $answer"
  # Termux:API up to 0.53 schedules a job of no network and then stumbles over its own answer: none
  # at all, and a notification about a NullPointerException, are good news.
  case $answer in
    "failed (137)"*) warn "termux-job-scheduler did not answer within $call_seconds s, so whether the heartbeat is scheduled isn't known; look in 20 minutes with: lorad's termux/service.sh status" ;;
    "failed "* | *"No such file"* | *"Cannot "* | *"response 0"*) warn "expected termux-job-scheduler to schedule the heartbeat, found that it $answer; open the app Termux:API once, then install again" ;;
  esac
}

# sv-enable can only start what is supervised.
start_supervision() {
  is_supervised && return 0
  bounded service-daemon start || : # it fails if runsvdir runs already
  within "$look_seconds" is_supervised \
    || warn "expected runsvdir to supervise $service, found: $answer; close Termux and open it again, and look with: sv status lorad"
}

restart_if_running() {
  case $answer in
    run:* | finish:*) bounded sv term lorad && say "the service is restarted" ;;
    down:*) [ ! -e "$service/gave-up" ] || { bounded sv up lorad && say "the service is started again"; } ;;
  esac || warn "expected the service to start again, found: $answer; look with: sv status lorad"
}

install_all() {
  for command in sv runsvdir svlogd service-daemon timeout; do
    have "$command" || fail "expected the command $command, found none; run: pkg install termux-services coreutils" 69
  done
  install_service
  install_boot
  install_heartbeat
  start_supervision
  restart_if_running
  if [ -e "$service/down" ]; then
    say "the service is installed and disabled; to start it, now and after every boot:"
    say "    . \"\$PREFIX/etc/profile.d/start-services.sh\"; sv-enable lorad"
  fi
}

cancel_heartbeat() {
  rm -f "$program/heartbeat.sh" "$program/heartbeat.last" "$program/heartbeat.lock"
  have termux-job-scheduler || return 0
  bounded termux-job-scheduler --cancel --job-id "$job" \
    || warn "expected termux-job-scheduler to cancel job $job, found that it failed ($code): $answer; without its script the job does nothing, and: termux-job-scheduler --cancel --job-id $job"
}

has_ended_in() { ! bounded sv status "$1"; }

# end_in FOLDER: and wait until it has; then take the folder away.
end_in() {
  [ -e "$1" ] || return 0
  if bounded sv exit "$1" && ! within "$stop_seconds" has_ended_in "$1"; then
    bounded sv kill "$1" || :
    within "$kill_seconds" has_ended_in "$1" \
      || fail "expected the service to end within $stop_seconds s, found: $answer; uninstall again"
  fi
  (cd "$1" && sh "$tree/end-left-behind")
  rm -rf "$1"
}

# Out of runsvdir's sight first, or it would start a new runsv for what has just ended.
uninstall_service() {
  end_in "$gone"
  [ -e "$service" ] || return 0
  : > "$service/down"
  mv "$service" "$gone"
  end_in "$gone"
  rm -rf "$log"
}

uninstall_all() {
  cancel_heartbeat
  if [ -e "$boot/lorad" ] && grep -qxF "$boot_mark" "$boot/lorad"; then rm -f "$boot/lorad"; fi
  uninstall_service
  say "the service is uninstalled; data and settings stay"
}

status() {
  [ -e "$service" ] || fail "the service isn't installed; run: sh termux/service.sh install" 3
  if [ -e "$service/down" ]; then say "disabled (sv-enable lorad)"; else say "enabled"; fi
  running=0
  is_supervised || running=3
  say "$answer"
  case $answer in run:*) ;; *) running=3 ;; esac
  [ ! -e "$service/gave-up" ] || say "gave up: the last lines of the log say why"
  if [ -e "$service/crash-count" ]; then
    read -r crashes _ < "$service/crash-count" || :
    say "ended within a minute of its start $crashes times in a row"
  fi
  if [ -r "$program/heartbeat.last" ]; then
    say "last heartbeat: $(cat "$program/heartbeat.last")"
  else
    say "no heartbeat yet"
  fi
  if [ -e "$boot/lorad" ]; then say "starts after boot (with the app Termux:Boot)"; else say "doesn't start after boot"; fi
  say "log: $log/current"
  exit "$running"
}

case ${1-} in
  install) install_all ;;
  uninstall) uninstall_all ;;
  status) status ;;
  *) fail "expected install, uninstall or status, found '${1-}'" 64 ;;
esac
