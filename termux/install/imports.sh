# shellcheck shell=sh disable=SC2154 # the variables are install.sh's
# The step `imports`: a package that is installed but can't be loaded is found now, not at night.

# Checked again when anything moved that an import hangs on.
imports_depends() {
  # shellcheck disable=SC2046,SC2016 # one word a package; dpkg-query's own variables
  printf '%s %s' "$(lorad_depends)" \
    "$(dpkg-query -W -f '${Package} ${Version}\n' $(wanted_packages) 2> /dev/null | cksum)"
}

imports_holds() { true; }

# Each in a process of its own: one that crashes the interpreter is a failed import like any other.
imports_do() {
  failed=
  for name in pydantic-core $(requirements) service.cli.commands; do
    module=$(printf '%s' "$name" | tr - _)
    if why=$("$venv/bin/python" -P -c "import $module" 2>&1 < /dev/null); then
      say "  $module: imported"
    else
      say "  $module: failed ($?): $(printf '%s' "$why" | tail -n 1)"
      failed="$failed $name"
    fi
  done
  [ -z "$failed" ] || say_what_then "$failed"
}

# say_what_then NAMES: the first remedy that fits, since one broken package breaks those that need it.
say_what_then() {
  if [ "$proot" = no ]; then
    for pin in $(pins_of "Termux's own packages"); do
      name=${pin%%==*}
      case " $1 " in
        *" $name "*) fail "Expected every package to be imported, found these failing:$1. $name is Termux's own: run 'pkg upgrade' and 'pkg reinstall python-$name'." ;;
      esac
    done
    for pin in $(pins_of "Wheels of the Termux User Repository"); do
      name=${pin%%==*}
      case " $1 " in
        *" $name "*)
          forget wheels
          fail "Expected every package to be imported, found these failing:$1. $name is a wheel of the Termux User Repository that doesn't fit this Python: a second run fetches it again, and $(again --build) may compile it."
          ;;
      esac
    done
  fi
  case "$1" in
    ' service.cli.commands') forget lorad ;;
    *) forget wheels lorad ;;
  esac
  fail "Expected every package to be imported, found these failing:$1. A second run installs them again; if they fail again, remove $(quoted "$venv") first."
}
