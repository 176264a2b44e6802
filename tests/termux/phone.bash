# A phone that isn't there: a fake $PREFIX and $HOME, a copy of the project's phone side in a folder whose
# name holds a space and a quote, and the stand-in commands of bin/ in $PREFIX/bin.
#
# It is always at the same place, so that it can be put back as it was: `keep_phone NAME` once for the
# file, `use_phone NAME` before each test.

# the_phone: where everything of it lies.
the_phone() {
  root="$BATS_FILE_TMPDIR/phone"
  export FAKE_PHONE="$root/notes" FAKE_PYTHON=13
  export PREFIX="$root/data/data/com.termux/files/usr"
  export HOME="$root/the home's folder"
  export TERMUX_VERSION=0.119.0-beta.3 TERMUX_APK_RELEASE=F_DROID
  unset LORAD_HOME LORAD_TUR_INDEX LORAD_TORCH_INDEX
  repository="$BATS_TEST_DIRNAME/../.."
  tree="$HOME/my lorad"
  program="$HOME/.local/lib/lorad"
  install="$tree/termux/install.sh"
  case $PATH in
    "$PREFIX/bin:"*) ;;
    *) export PATH="$PREFIX/bin:$PATH" ;;
  esac
}

make_phone() {
  mkdir -p "$FAKE_PHONE" "$PREFIX/bin" "$tree"
  touch "$FAKE_PHONE/calls" "$FAKE_PHONE/failing" "$FAKE_PHONE/installed" "$FAKE_PHONE/imported"
  echo 1 > "$FAKE_PHONE/version"
  cp "$BATS_TEST_DIRNAME"/bin/* "$PREFIX/bin"
  shell=${LORAD_SH:-dash}
  ln -s "$(command -v "${shell%% *}")" "$PREFIX/bin/sh"

  cp "$repository"/{pyproject.toml,README.md,LICENSE,constraints.txt,constraints-android.txt} "$tree"
  cp -R "$repository/termux" "$tree"
  rm -rf "$tree/termux/service" "$tree/termux/service.sh"
  mkdir -p "$tree"/{service,trainer,npu,storage,api_schemas} "$tree/termux/service"
  cp "$repository/termux/service/settings.sh" "$tree/termux/service"
  for room in service trainer npu storage api_schemas; do echo pass > "$tree/$room/__init__.py"; done
  # The service's own script is tested elsewhere; here it notes that it was called.
  cat > "$tree/termux/service.sh" << 'SERVICE'
echo "service.sh $1" >> "$FAKE_PHONE/calls"
if grep -Fqx "service:$1" "$FAKE_PHONE/failing"; then exit 1; fi
case $1 in
  install) mkdir -p "$PREFIX/var/service/lorad" ;;
  uninstall) rm -rf "$PREFIX/var/service/lorad" ;;
esac
SERVICE
  # pkg's Python, of the version that is asked for.
  cat > "$FAKE_PHONE/bring_python" << BRING
#!/bin/sh
rm -f "$PREFIX"/bin/python3.*
cp "$BATS_TEST_DIRNAME/python_stand_in" "$PREFIX/bin/python3.\$1"
ln -sf "python3.\$1" "$PREFIX/bin/python3"
BRING
  chmod +x "$FAKE_PHONE/bring_python"
}

keep_phone() {
  cp -a "$root" "$BATS_FILE_TMPDIR/$1"
}

use_phone() {
  rm -rf "$root"
  cp -a "$BATS_FILE_TMPDIR/$1" "$root"
}

# in_shell SCRIPT [WORD...]: runs it in the shell under test.
in_shell() {
  # shellcheck disable=SC2086 # "busybox sh" is two words
  run ${LORAD_SH:-dash} "$@"
}

failing() {
  printf '%s\n' "$@" > "$FAKE_PHONE/failing"
}

# forget_calls: what is noted from here on is what the next command did.
forget_calls() {
  : > "$FAKE_PHONE/calls"
  : > "$FAKE_PHONE/imported"
  : > "$FAKE_PHONE/failing"
}

# expect_status N: shows the output where the exit code is another.
expect_status() {
  if [ "$status" -ne "$1" ]; then
    printf 'expected exit code %s, found %s:\n%s\n' "$1" "$status" "$output" >&2
    return 1
  fi
}

# expect_words WORD...: each stands in the output.
expect_words() {
  for word in "$@"; do
    if [[ "$output" != *"$word"* ]]; then
      printf 'expected "%s" in:\n%s\n' "$word" "$output" >&2
      return 1
    fi
  done
}

# called REGULAR_EXPRESSION: how many calls fit it.
called() {
  grep -Ec -- "$1" "$FAKE_PHONE/calls" || true
}
