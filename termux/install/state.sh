# shellcheck shell=sh disable=SC2154 # the variables are install.sh's
# Which steps are done, and with what. A line of install.state is a step's name, a tab, and what the
# step depended on when it was done. A step is three functions: NAME_depends prints that on one line,
# NAME_holds says whether its result is still there, NAME_do does it or fails with a sentence.

# recorded NAME: what the step depended on when it was done; nothing if it isn't.
recorded() {
  [ ! -f "$program/install.state" ] \
    || awk -F '\t' -v name="$1" '$1 == name { print $2 }' "$program/install.state"
}

# forget NAME...: the next run does these steps again.
forget() {
  [ -f "$program/install.state" ] || return 0
  for forgotten in "$@"; do
    awk -F '\t' -v name="$forgotten" '$1 != name' "$program/install.state" > "$program/install.state.new"
    mv "$program/install.state.new" "$program/install.state"
  done
}

# record NAME WITH: the step is done.
record() {
  forget "$1"
  printf '%s\t%s\n' "$1" "$2" >> "$program/install.state"
}

# step NAME TITLE: does the step unless it is done and still right.
step() {
  if [ "$(recorded "$1")" = "$("$1_depends")" ] && "$1_holds"; then
    say "[$1] done before: $2"
  elif [ "$check" = yes ]; then
    say "[$1] would be done: $2"
  else
    say "[$1] $2"
    forget "$1"
    "$1_do"
    record "$1" "$("$1_depends")"
  fi
}
