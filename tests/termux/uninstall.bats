#!/usr/bin/env bats
# uninstall.sh: what goes, what stays, and what is asked before data is deleted.

bats_require_minimum_version 1.5.0

setup_file() {
  load phone.bash
  the_phone
  make_phone
  ${LORAD_SH:-dash} "$install"
  mkdir -p "$HOME/.local/share/lorad/models" "$HOME/.config/lorad"
  echo private > "$HOME/.local/share/lorad/lorad.db"
  echo 'LORAD_PORT=9000' > "$HOME/.config/lorad/env"
  forget_calls
  keep_phone installed
}

setup() {
  load phone.bash
  the_phone
  use_phone installed
  uninstall="$tree/termux/uninstall.sh"
  data="$HOME/.local/share/lorad"
}

# answered WORD SCRIPT [OPTION...]: as in_shell, with WORD typed.
answered() {
  answer=$1
  shift
  in_shell "$@" <<< "$answer"
}

# bats test_tags=every-shell
@test "the service, the command and the program folder go; data, settings and project stay" {
  in_shell "$uninstall"
  expect_status 0
  expect_words "Removed: the service" "Removed: $program" "Your data stays: $data"
  [ ! -e "$program" ]
  [ ! -e "$PREFIX/bin/lorad" ]
  [ ! -e "$PREFIX/var/service/lorad" ]
  [ "$(cat "$FAKE_PHONE/calls")" = "service.sh uninstall" ]
  [ "$(cat "$data/lorad.db")" = private ]
  [ -e "$HOME/.config/lorad/env" ]
  [ -e "$install" ]
  [ -e "$PREFIX/bin/python3" ]
}

@test "a second time, and before anything was installed, it has nothing to do" {
  in_shell "$uninstall"
  forget_calls
  in_shell "$uninstall"
  expect_status 0
  [ ! -s "$FAKE_PHONE/calls" ]
  [ "$(cat "$data/lorad.db")" = private ]
}

@test "installed again it finds the data as it was" {
  in_shell "$uninstall"
  in_shell "$install"
  expect_status 0
  [ "$(cat "$data/lorad.db")" = private ]
  "$PREFIX/bin/lorad" status
}

# bats test_tags=every-shell
@test "--delete-data names the folder and deletes it only after yes" {
  for answer in no '' y YES; do
    answered "$answer" "$uninstall" --delete-data
    expect_status 0
    expect_words "Delete $data with all examples" "Your data stays: $data"
    [ "$(cat "$data/lorad.db")" = private ]
  done
  in_shell "$uninstall" --delete-data < /dev/null
  expect_status 0
  [ -e "$data" ]
  answered yes "$uninstall" --delete-data
  expect_status 0
  expect_words "Deleted: $data"
  [ ! -e "$data" ]
}

@test "the home that the shell or the service's settings name is the one that is asked about" {
  mv "$data" "$HOME/else where"
  LORAD_HOME="$HOME/else where" answered no "$uninstall" --delete-data
  expect_words "Delete $HOME/else where with"
  for value in "$HOME/else where" "\"$HOME/else where\" "; do
    printf 'LORAD_PORT=1\n export LORAD_HOME=%s\nfalse; exit 3\n' "$value" > "$HOME/.config/lorad/env"
    answered no "$uninstall" --delete-data
    expect_words "Delete $HOME/else where with"
  done
  answered yes "$uninstall" --delete-data
  expect_status 0
  [ ! -e "$HOME/else where" ]
}

@test "a folder that isn't lorad's, or that holds HOME, is never deleted" {
  rm "$data/lorad.db"
  answered yes "$uninstall" --delete-data
  expect_status 1
  expect_words "found no lorad.db there"
  [ -d "$data/models" ]
  for folder in "$HOME" "$root"; do
    touch "$folder/lorad.db"
    LORAD_HOME="$folder" answered yes "$uninstall" --delete-data
    expect_status 1
    expect_words "found that $folder holds \$HOME"
    [ -d "$HOME" ]
  done
}

@test "a service that can't be taken out stops it before anything is gone" {
  failing service:uninstall
  in_shell "$uninstall"
  expect_status 1
  expect_words "Nothing else was removed"
  [ -x "$PREFIX/bin/lorad" ]
  [ -d "$program/venv" ]
}

@test "somebody else's command lorad is left alone" {
  echo mine > "$PREFIX/bin/lorad"
  in_shell "$uninstall"
  expect_status 0
  expect_words "Left alone"
  [ "$(cat "$PREFIX/bin/lorad")" = mine ]
}

@test "an option it doesn't know" {
  in_shell "$uninstall" --everything
  expect_status 2
  expect_words "found --everything"
  [ -d "$program" ]
}
