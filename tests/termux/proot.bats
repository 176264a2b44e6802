#!/usr/bin/env bats
# install.sh --proot: the CPU-only route inside a Debian or Ubuntu of proot-distro.

bats_require_minimum_version 1.5.0

setup_file() {
  load phone.bash
  the_phone
  make_phone
  rm "$PREFIX/bin/pkg"
  "$FAKE_PHONE/bring_python" 13
  keep_phone debian
}

setup() {
  load phone.bash
  the_phone
  use_phone debian
  unset TERMUX_VERSION TERMUX_APK_RELEASE
  # Its packages are asked for as root, which proot plays.
  printf '#!/bin/sh\necho "${FAKE_USER:-0}"\n' > "$PREFIX/bin/id"
  chmod +x "$PREFIX/bin/id"
}

# bats test_tags=every-shell
@test "from nothing to lorad doctor, and the NPU is said to be out of reach" {
  in_shell "$install" --proot
  expect_status 0
  expect_words "The NPU can't be reached from here" "lorad is installed" "lorad serve (there is no service here)"
  [ "$(head -n 2 "$FAKE_PHONE/calls" | cut -d ' ' -f 1,2)" = "apt-get update
apt-get install" ]
  [ "$(called '^apt-get install .*python3-venv$')" = 1 ]
  [ "$(called "^python -m venv $program/venv\$")" = 1 ]
  [ "$(called 'service.sh')" = 0 ]
  [ "$(tail -n 1 "$FAKE_PHONE/calls")" = "python $program/venv/bin/lorad doctor" ]
  "$PREFIX/bin/lorad" status
}

@test "the run-time set at the versions of constraints.txt, torch for the CPU, without the NPU's package" {
  in_shell "$install" --proot
  expect_status 0
  torch=$(grep '^torch==' "$repository/constraints.txt")
  [ "$(called "uv pip install --no-deps --torch-backend cpu $torch\$")" = 1 ]
  [ "$(called '-c .*/constraints.txt setuptools==.* fastapi==')" = 1 ]
  [ "$(called 'onnxruntime==')" = 1 ]
  [ "$(called 'qnn|pytest|scikit')" = 0 ]
}

@test "torch from another index" {
  LORAD_TORCH_INDEX=file:///wheels in_shell "$install" --proot
  expect_status 0
  [ "$(called '--no-deps --index-url file:///wheels torch==')" = 1 ]
  [ "$(called ' uv ')" = 0 ]
}

@test "a second run does nothing twice" {
  in_shell "$install" --proot
  forget_calls
  in_shell "$install" --proot
  expect_status 0
  [ "$(cat "$FAKE_PHONE/calls")" = "python $program/venv/bin/lorad doctor" ]
}

@test "apt-get and pip fail once, and the words name this route" {
  failing apt-get:python3-venv
  in_shell "$install" --proot
  expect_status 1
  expect_words "apt-get to install python3-venv" "termux/install.sh' --proot"
  failing pip:fastapi
  in_shell "$install" --proot
  expect_status 1
  expect_words "packages of constraints.txt" "termux/install.sh' --proot"
  failing
  in_shell "$install" --proot
  expect_status 0
}

@test "a build of torch for graphics cards is refused" {
  failing second:nvidia
  in_shell "$install" --proot
  expect_status 1
  expect_words "Expected a CPU build of torch, found one with nvidia"
}

@test "not root" {
  FAKE_USER=1000 in_shell "$install" --proot
  expect_status 1
  expect_words "found user 1000" "proot-distro login debian"
}

@test "in Termux itself it says how to get inside" {
  cp "$BATS_TEST_DIRNAME/bin/pkg" "$PREFIX/bin/pkg"
  TERMUX_VERSION=0.118.3 in_shell "$install" --proot
  expect_status 1
  expect_words "found Termux itself" "proot-distro install debian" "proot-distro login debian"
  [ ! -s "$FAKE_PHONE/calls" ]
}

@test "without --proot it says where it is, and names the option" {
  in_shell "$install"
  expect_status 1
  expect_words "Expected Termux" "use --proot"
}
