# shellcheck shell=sh disable=SC2154 # the variables are install.sh's
# The steps `upgrade` and `packages`: what comes compiled from Termux (or from Debian, in a proot).

# python-pip: the environment uses this pip, not one of its own.
termux_packages="python python-pip python-numpy python-torch python-onnxruntime termux-services termux-api"
debian_packages="python3 python3-venv"

wanted_packages() {
  if [ "$proot" = yes ]; then
    printf '%s' "$debian_packages"
  else
    printf '%s' "$termux_packages"
  fi
}

# missing_packages: the wanted ones that aren't installed. All are if nothing can be asked.
missing_packages() {
  # shellcheck disable=SC2016,SC2046 # dpkg-query's own variables; one word a package
  there=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' $(wanted_packages) 2> /dev/null) || :
  for package in $(wanted_packages); do
    case "
$there
" in
      *"
$package installed
"*) ;;
      *) printf '%s ' "$package" ;;
    esac
  done
}

# Everything is upgraded before anything is added: torch built against newer libraries than those that
# are there fails at its import.
upgrade_depends() { wanted_packages; }

upgrade_holds() { [ -z "$(missing_packages)" ]; }

upgrade_do() {
  if [ "$proot" = yes ]; then
    may_use_apt
    apt-get update || fail "Expected apt-get update to succeed, found the error above: see to the network."
  else
    pkg upgrade -y || fail "Expected pkg upgrade to succeed, found the error above: see to the network, or choose another mirror with termux-change-repo."
  fi
}

packages_depends() { wanted_packages; }

packages_holds() { [ -z "$(missing_packages)" ]; }

packages_do() {
  for package in $(missing_packages); do
    if [ "$proot" = yes ]; then
      may_use_apt
      DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$package" \
        || fail "Expected apt-get to install $package, found the error above: see to the network and to the free storage."
    else
      pkg install -y "$package" \
        || fail "Expected pkg to install $package, found the error above: see to the network and to the free storage, or choose another mirror with termux-change-repo."
    fi
  done
  left=$(missing_packages)
  [ -z "$left" ] || fail "Expected all packages to be installed, found these missing: $left- install them by hand to see why."
}
