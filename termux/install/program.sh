# shellcheck shell=sh disable=SC2154 # the variables are install.sh's
# The steps `lorad`, `launcher` and `service`, and the last words.

# rooms: the folders of this project that are Python packages, as pyproject.toml names them.
rooms() {
  sed -n 's/^include = \[\(.*\)\]/\1/p' "$tree/pyproject.toml" | tr -d '",*'
}

lorad_depends() {
  # shellcheck disable=SC2046 # one word a room
  printf '%s %s' "$(python_now)" "$(cd "$tree" && find pyproject.toml $(rooms) -type f ! -name '*.pyc' \
    -exec cksum {} + | LC_ALL=C sort | cksum)"
}

lorad_holds() { [ -x "$venv/bin/lorad" ]; }

# From a copy: a build leaves folders behind, and must not find those of an older one.
# The service is put in place again, too, which restarts it if it runs.
lorad_do() {
  forget imports service
  source=$program/source
  rm -rf "$source"
  mkdir "$source"
  # shellcheck disable=SC2046 # one word a room
  (cd "$tree" && cp -R pyproject.toml README.md LICENSE $(rooms) "$source") \
    || fail "Expected to copy lorad into $source, found the error above: see to the free storage."
  pip_install --no-deps --no-build-isolation --no-index --force-reinstall "$source" \
    || fail "Expected lorad to install from $tree, found the error above: see to the free storage, and that the project is complete."
  rm -rf "$source"
}

# launcher_text: termux/launcher.sh with the paths of this phone before it. Where it is called from a
# notification's button there is neither HOME nor PATH.
launcher_text() {
  printf '#!%s\n' "$(launcher_shell)"
  printf 'program=%s\npython=%s\n' "'$(escaped "$program")'" "'$(escaped "$python")'"
  # shellcheck disable=SC2016 # the launcher's own variable
  printf '[ -n "${HOME:-}" ] || export HOME=%s\n' "'$(escaped "$HOME")'"
  tail -n +2 "$tree/termux/launcher.sh"
}

launcher_shell() {
  if [ "$proot" = yes ]; then
    printf '/bin/sh'
  else
    printf '%s/bin/sh' "$prefix"
  fi
}

# escaped TEXT: TEXT as it stands between single quotes.
escaped() {
  printf '%s' "$1" | sed "s/'/'\\\\''/g"
}

launcher_depends() { printf '%s' "$prefix"; }

launcher_holds() { [ -x "$prefix/bin/lorad" ] && launcher_text | cmp -s - "$prefix/bin/lorad"; }

launcher_do() {
  if [ -e "$prefix/bin/lorad" ] && ! grep -q "^# lorad's launcher" "$prefix/bin/lorad"; then
    fail "Expected $prefix/bin/lorad to be free, found a file that isn't lorad's launcher: move it away."
  fi
  mkdir -p "$prefix/bin"
  launcher_text > "$prefix/bin/lorad.new"
  chmod 755 "$prefix/bin/lorad.new"
  mv "$prefix/bin/lorad.new" "$prefix/bin/lorad"
}

service_depends() {
  (cd "$tree/termux" && find service.sh service -type f -exec cksum {} + | LC_ALL=C sort | cksum)
}

service_holds() { [ -d "$prefix/var/service/lorad" ]; }

service_do() {
  sh "$tree/termux/service.sh" install \
    || fail "Expected the service to be put in place, found the error above: see what it says."
}

finish() {
  if [ "$check" = yes ]; then
    say "It would end with lorad doctor. Nothing was changed."
    return 0
  fi
  say "lorad is installed. lorad doctor tests what it can train with:"
  sh "$prefix/bin/lorad" doctor \
    || fail "Expected lorad doctor to find an engine that works, found none: see what it says above."
  say "Next: lorad model add NAME FOLDER, lorad pair, and $(how_to_start). Data: ${LORAD_HOME:-$HOME/.local/share/lorad}"
}

how_to_start() {
  if [ "$proot" = yes ]; then
    printf 'lorad serve (there is no service here)'
  else
    printf 'sv-enable lorad to start the service'
  fi
}
