#!/usr/bin/env bats
# $PREFIX/bin/lorad: runs lorad, or says in one sentence that its Python is gone, without starting any.

bats_require_minimum_version 1.5.0

setup_file() {
  load phone.bash
  the_phone
  make_phone
  ${LORAD_SH:-dash} "$install"
  forget_calls
  keep_phone installed
}

setup() {
  load phone.bash
  the_phone
  use_phone installed
  launcher="$PREFIX/bin/lorad"
}

# expect_dead WORDS: exit code 69, one sentence that names these and what to paste, and no Python started.
expect_dead() {
  in_shell "$launcher" status
  expect_status 69
  expect_words "$1" "which makes it anew and keeps all data"
  [ "${#lines[@]}" = 1 ]
  [ ! -s "$FAKE_PHONE/calls" ]
  # The remedy can be pasted as it stands.
  remedy=${output#*: run }
  eval "remedied() { printf '%s|' ${remedy%, which*}; }"
  [ "$(remedied)" = "sh|$install|" ]
}

# bats test_tags=every-shell
@test "runs lorad with the words it was given, and ends as it ends" {
  in_shell "$launcher" seven 'two words' '' "it's"
  expect_status 7
  [ "$(cat "$FAKE_PHONE/calls")" = "python $program/venv/bin/lorad seven two words  it's" ]
  "$launcher" status
  [ "$(called .)" = 2 ]
}

@test "needs neither HOME nor PATH: a notification's button has none" {
  run env -i FAKE_PHONE="$FAKE_PHONE" "$PREFIX/bin/lorad" status
  expect_status 0
  [ "$(sed -n 1p "$FAKE_PHONE/environment")" = "$HOME" ]
  [[ ":$(sed -n 2p "$FAKE_PHONE/environment"):" == *":$PREFIX/bin:"* ]]
}

@test "another HOME that is set is left alone" {
  HOME=/elsewhere in_shell "$launcher" status
  expect_status 0
  [ "$(sed -n 1p "$FAKE_PHONE/environment")" = /elsewhere ]
}

# bats test_tags=every-shell
@test "Python moved from 3.13 to 3.14" {
  "$FAKE_PHONE/bring_python" 14
  expect_dead "made for $PREFIX/bin/python3.14, found one made for $PREFIX/bin/python3.13"
}

@test "Python moved, and the old one is still there" {
  cp "$PREFIX/bin/python3.13" "$PREFIX/bin/python3.14"
  ln -sf python3.14 "$PREFIX/bin/python3"
  expect_dead "found one made for $PREFIX/bin/python3.13"
}

@test "the same version with another ABI" {
  cp "$PREFIX/bin/python3.13" "$PREFIX/bin/python3.13t"
  ln -sf python3.13t "$PREFIX/bin/python3"
  expect_dead "made for $PREFIX/bin/python3.13t"
}

@test "Python is gone" {
  rm "$PREFIX"/bin/python3*
  expect_dead "found no Python there"
}

@test "Python is gone but for its name" {
  rm "$PREFIX"/bin/python3.13
  expect_dead "found no Python there"
}

# bats test_tags=every-shell
@test "the environment is gone" {
  rm -r "$program/venv"
  expect_dead "found none"
}

@test "the environment is half made" {
  rm "$program/venv/bin/lorad"
  expect_dead "found one without lorad"
}

@test "the environment's own Python is gone" {
  rm "$program/venv/bin/python"
  expect_dead "found one whose own Python is gone"
}

@test "what it says helps: the installer it names makes it run again" {
  "$FAKE_PHONE/bring_python" 14
  expect_dead "python3.14"
  eval "$(sed "s/'$//" <<< "${remedy%, which*}'")"
  in_shell "$launcher" status
  expect_status 0
}
