#!/usr/bin/env bats
# install.sh on a phone that isn't there: the straight path, each step failing once, and what changes later.

bats_require_minimum_version 1.5.0

setup_file() {
  load phone.bash
  the_phone
  make_phone
  keep_phone fresh
  ${LORAD_SH:-dash} "$install"
  forget_calls
  keep_phone installed
}

setup() {
  load phone.bash
  the_phone
  use_phone fresh
}

# bats test_tags=every-shell
@test "from nothing to lorad doctor, in the right order" {
  in_shell "$install"
  expect_status 0
  expect_words "Termux 0.119.0-beta.3, aarch64, Android API level 36" "lorad is installed"
  run cut -d ' ' -f 1-3 "$FAKE_PHONE/calls"
  [ "${lines[0]}" = "pkg upgrade -y" ]
  [ "${lines[1]}" = "pkg install -y" ]
  [ "$(called '^pkg install -y (python|python-pip|python-numpy|python-torch|python-onnxruntime|termux-services|termux-api)$')" = 7 ]
  [ "$(called '^pkg ')" = 8 ]
  grep -Fqx "python -m venv --system-site-packages --without-pip $program/venv" "$FAKE_PHONE/calls"
  [ "$(tail -n 2 "$FAKE_PHONE/calls")" = "service.sh install
python $program/venv/bin/lorad doctor" ]
  [ "$(cat "$program/tree")" = "$tree" ]
  [ ! -e "$program/source" ]
}

@test "pip is never let to choose: every package at its pinned version, without dependencies, as a wheel" {
  in_shell "$install"
  expect_status 0
  [ "$(called ' pip .* install ')" = 4 ]
  [ "$(called ' pip .*--no-deps')" = 4 ]
  [ "$(called ' pip .*--no-deps --only-binary=:all:')" = 3 ]
  [ "$(called '(numpy|torch|onnxruntime)==')" = 0 ]
  grep -Eq -- '--extra-index-url https://termux-user-repository.github.io/pypi/ pydantic-core==[0-9.]+$' "$FAKE_PHONE/calls"
  grep -Eq -- '--extra-index-url https://termux-user-repository.github.io/pypi/ tokenizers==[0-9.]+$' "$FAKE_PHONE/calls"
  # Everything that constraints-android.txt names was asked for, or is pkg's.
  for pin in $(grep -Ev '^(#|$|numpy=|torch=|onnxruntime=)' "$repository/constraints-android.txt"); do
    grep -Eq -- " $pin( |\$)" "$FAKE_PHONE/calls"
  done
  [ "$(called 'tzdata==')" = 1 ]
}

@test "every run-time dependency is imported, and the Linux-only one is not" {
  in_shell "$install"
  expect_status 0
  python3=$(PATH=${PATH#"$PREFIX/bin:"} command -v python3)
  "$python3" - "$repository/pyproject.toml" > "$BATS_TEST_TMPDIR/wanted" << 'PYTHON'
import re, sys, tomllib
lines = tomllib.load(open(sys.argv[1], "rb"))["project"]["dependencies"]
names = [re.match(r"[\w.-]+", line)[0].replace("-", "_") for line in lines if "sys_platform" not in line]
print(*sorted([*names, "pydantic_core", "service.cli.commands"]), sep="\n")
PYTHON
  [ "$(LC_ALL=C sort "$FAKE_PHONE/imported")" = "$(LC_ALL=C sort "$BATS_TEST_TMPDIR/wanted")" ]
}

@test "a second run does nothing twice" {
  use_phone installed
  cp "$program/install.state" "$BATS_TEST_TMPDIR/state"
  forget_calls
  in_shell "$install"
  expect_status 0
  [ "$(cat "$FAKE_PHONE/calls")" = "python $program/venv/bin/lorad doctor" ]
  [ ! -s "$FAKE_PHONE/imported" ]
  cmp "$program/install.state" "$BATS_TEST_TMPDIR/state"
  [ "$(grep -c 'done before' <<< "$output")" = 8 ]
}

@test "--check changes nothing, before and after" {
  in_shell "$install" --check
  expect_status 0
  expect_words "[upgrade] would be done" "[service] would be done" "Nothing was changed"
  [ ! -s "$FAKE_PHONE/calls" ]
  [ ! -e "$program" ]
  [ ! -e "$HOME/.local" ]
  use_phone installed
  touch "$tree/npu/new.py"
  in_shell "$install" --check
  expect_status 0
  expect_words "[venv] done before" "[lorad] would be done" "[imports] would be done"
  [ ! -s "$FAKE_PHONE/calls" ]
}

# bats test_tags=every-shell
@test "every step fails once, and each run goes on where the last one ended" {
  while IFS='|' read -r failure words again not_again; do
    forget_calls
    failing "$failure"
    in_shell "$install"
    expect_status 1
    expect_words "Expected" "Then run again: sh '" "my lorad/termux/install.sh'" "$words"
    [ "$(called 'lorad doctor')" = 0 ]
    [ "$(called "$again")" -ge 1 ]
    [ "$(called "$not_again")" = 0 ]
  done << 'FAILURES'
pkg:upgrade|choose another mirror with termux-change-repo|^pkg upgrade|^pkg install
pkg:python-torch|pkg to install python-torch|^pkg upgrade|venv
old-python|Python 3.11 or newer as|^pkg install -y python-torch|^pkg install -y python-numpy
venv|python3 -m venv to succeed|-m venv|^pkg
pip:network|no network|pydantic-core==|^pkg
pip:fastapi|wheels of constraints-android.txt from PyPI|tokenizers==|-m venv
pip:lorad|lorad to install from|fastapi==|-m venv
import:sqlmodel|  sqlmodel: failed (1): ImportError: dlopen failed|/source$|fastapi==
crash:onnxruntime|'pkg upgrade' and 'pkg reinstall python-onnxruntime'|sqlmodel==|-m venv
service:install|the service to be put in place|service.sh install|fastapi==
FAILURES
  forget_calls
  in_shell "$install"
  expect_status 0
  [ "$(cat "$FAKE_PHONE/calls")" = "service.sh install
python $program/venv/bin/lorad doctor" ]
}

@test "where pydantic-core's wheel doesn't load, its dependants' failures don't hide the remedy" {
  failing import:pydantic_core import:pydantic import:fastapi
  in_shell "$install"
  expect_status 1
  expect_words "failing: pydantic-core fastapi pydantic." "pydantic-core is a wheel of the Termux User Repository" "--build"
}

@test "the launcher's place is taken by somebody else's file" {
  echo mine > "$PREFIX/bin/lorad"
  in_shell "$install"
  expect_status 1
  expect_words "a file that isn't lorad's launcher"
  [ "$(cat "$PREFIX/bin/lorad")" = mine ]
}

@test "lorad doctor finds no engine" {
  failing doctor
  in_shell "$install"
  expect_status 1
  expect_words "lorad is installed" "Expected lorad doctor to find an engine"
}

@test "no wheel of pydantic-core: nothing is compiled unless --build says so, and then for API level 24" {
  failing pip:pydantic-core
  in_shell "$install"
  expect_status 1
  expect_words "a wheel of pydantic-core==" "for python3.13" "install.sh' --build"
  [ "$(called 'pkg install -y rust')" = 0 ]
  [ "$(called 'no-binary')" = 0 ]
  in_shell "$install" --build
  expect_status 0
  expect_words "compiled here"
  [ "$(called 'pkg install -y rust')" = 1 ]
  [ "$(called 'no-binary pydantic-core .*pydantic-core==')" = 1 ]
}

@test "the build fails: the words name the other route" {
  failing pip:pydantic-core pip:build
  in_shell "$install" --build
  expect_status 1
  expect_words "to compile" "--proot" "install.sh' --build"
}

@test "another index for the wheels of the Termux User Repository" {
  LORAD_TUR_INDEX=file:///sdcard/wheels in_shell "$install"
  expect_status 0
  [ "$(called 'extra-index-url file:///sdcard/wheels ')" = 2 ]
  [ "$(called 'termux-user-repository')" = 0 ]
}

@test "a pip that brings a second numpy is found out, and the environment goes" {
  failing second:numpy
  in_shell "$install"
  expect_status 1
  expect_words "a second copy in the environment: numpy"
  [ ! -e "$program/venv" ]
  forget_calls
  in_shell "$install"
  expect_status 0
  [ "$(called '-m venv')" = 1 ]
}

@test "a numpy that comes later is found out by the next run" {
  use_phone installed
  mkdir "$program/venv/lib/python3.13/site-packages/numpy"
  in_shell "$install"
  expect_status 1
  expect_words "a second copy in the environment: numpy"
}

@test "Python moved from 3.13 to 3.14: the environment is made anew, the data stays as it was" {
  use_phone installed
  mkdir -p "$HOME/.local/share/lorad"
  echo private > "$HOME/.local/share/lorad/lorad.db"
  "$FAKE_PHONE/bring_python" 14
  forget_calls
  in_shell "$install"
  expect_status 0
  [ "$(called 'pkg ')" = 0 ]
  [ "$(called '-m venv')" = 1 ]
  [ "$(called 'fastapi==')" = 1 ]
  [ -d "$program/venv/lib/python3.14" ]
  [ ! -e "$program/venv/lib/python3.13" ]
  [ "$(cat "$HOME/.local/share/lorad/lorad.db")" = private ]
  [ "$(called 'service.sh install')" = 1 ]
}

@test "pkg upgrade changed torch: only the imports are tried again" {
  use_phone installed
  echo 2 > "$FAKE_PHONE/version"
  forget_calls
  in_shell "$install"
  expect_status 0
  [ -s "$FAKE_PHONE/imported" ]
  [ "$(called ' pip ')" = 0 ]
}

@test "a package that was uninstalled comes back, after an upgrade" {
  use_phone installed
  sed -i /python-torch/d "$FAKE_PHONE/installed"
  forget_calls
  in_shell "$install"
  expect_status 0
  [ "$(grep '^pkg' "$FAKE_PHONE/calls")" = "pkg upgrade -y
pkg install -y python-torch" ]
}

@test "a package that went missing from the environment is fetched again, and only the pins' step" {
  use_phone installed
  rm -r "$program"/venv/lib/python3.13/site-packages/starlette-*
  forget_calls
  in_shell "$install"
  expect_status 0
  [ "$(called 'starlette==')" = 1 ]
  [ "$(called '-m venv')" = 0 ]
}

@test "new pins are installed, and so is a project that changed" {
  use_phone installed
  sed -i 's/^rich==.*/rich==99.0.0/' "$tree/constraints-android.txt"
  echo 'x = 1' >> "$tree/npu/__init__.py"
  forget_calls
  in_shell "$install"
  expect_status 0
  [ "$(called 'rich==99.0.0')" = 1 ]
  [ "$(called '/source$')" = 1 ]
  [ "$(called 'service.sh install')" = 1 ]
}

@test "killed in the middle of the environment: it is begun anew" {
  failing pip:network
  in_shell "$install"
  rm "$program/venv/bin/python"
  forget_calls
  in_shell "$install"
  expect_status 0
  [ "$(called '-m venv')" = 1 ]
}

@test "the Termux of the Play Store is refused with the reason, and used when told to" {
  for way in version release; do
    forget_calls
    if [ "$way" = version ]; then
      TERMUX_VERSION=googleplay.2025.10.05 TERMUX_APK_RELEASE='' in_shell "$install"
    else
      TERMUX_APK_RELEASE=GOOGLE_PLAY_STORE in_shell "$install"
    fi
    expect_status 1
    expect_words "Warning: this is the Termux of the Play Store" "F-Droid or GitHub" "--play-store"
    [ ! -s "$FAKE_PHONE/calls" ]
    [ ! -e "$program" ]
  done
  TERMUX_VERSION=googleplay.2025.10.05 in_shell "$install" --play-store
  expect_status 0
  expect_words "Warning: this is the Termux of the Play Store"
}

@test "not a phone it can be installed on: each is said, nothing is touched" {
  FAKE_MACHINE=armv8l in_shell "$install"
  expect_status 1
  expect_words "found armv8l"
  FAKE_ARCHITECTURE=arm in_shell "$install"
  expect_status 1
  expect_words "found one for arm" "arm64-v8a"
  FAKE_SDK=23 in_shell "$install"
  expect_status 1
  expect_words "found API level 23"
  TERMUX_VERSION='' in_shell "$install"
  expect_status 1
  expect_words "Expected Termux" "make setup"
  HOME='' in_shell "$install"
  expect_status 1
  expect_words "Expected \$HOME to be a folder"
  in_shell "$install" --turbo
  expect_status 2
  expect_words "found --turbo"
  [ ! -s "$FAKE_PHONE/calls" ]
  [ ! -e "$program" ]
}

@test "no word from getprop is no reason to stop" {
  FAKE_SDK='' in_shell "$install" --check
  expect_status 0
  expect_words "Android API level unknown"
}

@test "short storage is said before anything is begun, and not once it is done" {
  FAKE_FREE_KB=1048576 in_shell "$install"
  expect_status 0
  expect_words "Warning: expected 3 GB of free storage, found 1024 MB"
  [[ "$output" == *"Warning: expected 3 GB"*"[upgrade]"* ]]
  FAKE_FREE_KB=1048576 in_shell "$install"
  [[ "$output" != *"Warning"* ]]
}

# bats test_tags=every-shell
@test "--help says what it can do" {
  in_shell "$install" --help
  expect_status 0
  expect_words "--check" "--build" "--proot"
}
