# shellcheck shell=sh disable=SC2154 # the variables are install.sh's
# The steps `venv` and `wheels`: the Python environment, and what comes into it.
#
# In Termux numpy, torch and onnxruntime are pkg's and are seen through --system-site-packages. pip never
# resolves anything: constraints-android.txt is complete, so every package is named at its version and
# installed with --no-deps, and the environment holds no second numpy.

# Where the Termux User Repository keeps its wheels, as its README says.
tur_index=${LORAD_TUR_INDEX:-https://termux-user-repository.github.io/pypi/}

venv_depends() { python_now; }

venv_holds() { [ -x "$venv/bin/python" ] && grep -Fqx "executable = $(python_now)" "$venv/pyvenv.cfg"; }

venv_do() {
  if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    fail "Expected Python 3.11 or newer as $python, found '$("$python" --version 2>&1)': upgrade the packages."
  fi
  forget wheels lorad imports
  rm -rf "$venv"
  if [ "$proot" = yes ]; then
    "$python" -m venv "$venv"
  else
    "$python" -m venv --system-site-packages --without-pip "$venv"
  fi || fail "Expected python3 -m venv to succeed, found the error above: see to the free storage."
  venv_holds || fail "Expected an environment made for $(python_now), found '$(grep '^executable' "$venv/pyvenv.cfg")' in $venv/pyvenv.cfg: lorad would take it for one of another Python; report it with the output of '$python -VV'."
}

# pins_of TITLE: the name==version lines under the comment that begins with TITLE.
pins_of() {
  awk -v title="# $1" '
    /^#/ { within = index($0, title) == 1 }
    within && /^[A-Za-z0-9]/ { print $1 }
  ' "$tree/constraints-android.txt"
}

# requirements: pyproject.toml's dependencies, a name a line, lower case with "-". What is only for a
# computer's Linux is left out: that is the NPU's package, which has no build for Termux, and whose
# libraries don't load in a proot.
requirements() {
  awk '
    /^dependencies = \[/ { within = 1; next }
    within && /^\]/ { exit }
    within && !/sys_platform == .linux./ { print }
  ' "$tree/pyproject.toml" | sed -n 's/^ *"\([A-Za-z0-9._-]*\).*/\1/p' | tr 'A-Z_' 'a-z-'
}

# wanted_pins: what must lie in the environment at exactly this version.
wanted_pins() {
  if [ "$proot" = yes ]; then
    { requirements; cat "$tree/constraints.txt"; } | awk '
      /^#/ { next }
      !/==/ { needed[$1]; next }
      { name = tolower($1); sub(/==.*/, "", name); gsub("_", "-", name) }
      name in needed { print $1 }
    '
  else
    pins_of "Wheels of the Termux User Repository"
    pins_of PyPI
  fi
}

# unmet_pins: the wanted ones that the environment doesn't hold. A local version ("+cpu") is the same
# version.
unmet_pins() {
  {
    wanted_pins
    for held in "$(packages_of_venv)"/*.dist-info; do
      say "held ${held##*/}"
    done
  } | awk '
    { line = tolower($NF); gsub("-", "_", line) }
    $1 == "held" { sub(/(\+[a-z0-9.]*)?\.dist_info$/, "", line); held[line]; next }
    { sub("==", "_", line); pins[line] = $1 }
    END { for (pin in pins) if (!(pin in held)) printf "%s ", pins[pin] }
  '
}

# second_copies: pkg's packages that the environment holds once more.
second_copies() {
  [ "$proot" = no ] || return 0
  for pin in $(pins_of "Termux's own packages"); do
    [ ! -e "$(packages_of_venv)/${pin%%==*}" ] || printf '%s ' "${pin%%==*}"
  done
}

wheels_depends() {
  printf '%s %s' "$(python_now)" "$(cat "$tree/constraints-android.txt" "$tree/constraints.txt" | cksum)"
}

wheels_holds() { [ -z "$(unmet_pins)" ] && [ -z "$(second_copies)" ]; }

pip_install() {
  "$venv/bin/python" -m pip --disable-pip-version-check --no-input install --no-compile "$@"
}

# Forced, so that nothing that happens to lie in pkg's own folder is taken for ours, and so that a broken
# file is mended by a second run.
wheels_do() {
  forget imports
  if [ "$proot" = yes ]; then
    install_in_proot
  else
    for pin in $(pins_of "Wheels of the Termux User Repository"); do
      install_from_tur "$pin"
    done
    # shellcheck disable=SC2046 # one word a pin
    pip_install --no-deps --only-binary=:all: --force-reinstall $(pins_of PyPI) \
      || fail "Expected the wheels of constraints-android.txt from PyPI, found the error above: see to the network and to the free storage."
  fi
  second=$(second_copies)
  if [ -n "$second" ]; then
    rm -rf "$venv"
    forget venv wheels lorad imports
    fail "Expected pkg's own packages alone, found a second copy in the environment: $second- so the environment was removed. See that no setting of pip's adds packages (pip config list)."
  fi
  unmet=$(unmet_pins)
  [ -z "$unmet" ] || fail "Expected every pinned package in $venv, found these missing: $unmet- see what pip said above and what 'pip config list' sets."
}

# install_from_tur PIN: a compiled package that only the Termux User Repository has for Android. The exact
# version matters: without it pip would take an old placeholder of pydantic-core's that holds nothing.
install_from_tur() {
  if pip_install --no-deps --only-binary=:all: --force-reinstall --extra-index-url "$tur_index" "$1"; then
    say "$1: from a wheel"
  elif [ "$build" = yes ]; then
    build_here "$1"
  else
    fail "Expected a wheel of $1 for $(basename "$(python_now)") at $tur_index, found none (or no network): see to the network; if the Termux User Repository has none yet, wait for it, name another index in LORAD_TUR_INDEX, or let it be compiled here, which takes long and more than 1 GB of memory: $(again --build)."
  fi
}

# build_here PIN: compile it. The API level is that of Termux's Python, not the phone's: a wheel made for
# the phone's own level would not be accepted.
build_here() {
  say "$1: compiling it here, which takes long and more than 1 GB of memory"
  pkg install -y rust || fail "Expected pkg to install rust, found the error above: see to the network and to the free storage."
  ANDROID_API_LEVEL=24 pip_install --no-deps --no-binary "${1%%==*}" --force-reinstall \
    --extra-index-url "$tur_index" "$1" \
    || fail "Expected $1 to compile, found the error above: wait until the Termux User Repository has a wheel of it for $(basename "$(python_now)"), or use the CPU-only route in proot-distro (--proot)."
  say "$1: compiled here"
}
