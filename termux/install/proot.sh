# shellcheck shell=sh disable=SC2154 # the variables are install.sh's
# The second route: inside a Debian or Ubuntu of proot-distro, where every package is a plain Linux wheel.

look_at_proot() {
  say "Inside a Debian or Ubuntu: lorad will compute on the CPU alone. The NPU can't be reached from here, because Android's own libraries for it don't load into a Linux program; readings of the battery and the service need Termux itself, too."
}

may_use_apt() {
  if [ "$(id -u)" != 0 ]; then
    fail "Expected to be root of this Debian or Ubuntu, found user $(id -u): log in with 'proot-distro login debian'."
  fi
}

# install_in_proot: the pinned runtime set without the NPU's package. torch comes first and by itself,
# because the default index may serve a build of several GB for graphics cards: from LORAD_TORCH_INDEX if
# that is set, else through uv, which knows PyTorch's index of CPU builds.
install_in_proot() {
  torch=$(wanted_pins | grep '^torch==')
  if [ -n "${LORAD_TORCH_INDEX:-}" ]; then
    pip_install --no-deps --index-url "$LORAD_TORCH_INDEX" "$torch"
  else
    pip_install --no-deps "$(grep '^uv==' "$tree/constraints.txt")" \
      && "$venv/bin/python" -m uv pip install --no-deps --torch-backend cpu "$torch"
  fi || fail "Expected a CPU build of $torch, found the error above: see to the network, or set LORAD_TORCH_INDEX to a package index that has one."

  # shellcheck disable=SC2046 # one word a pin
  pip_install -c "$tree/constraints.txt" "$(grep '^setuptools==' "$tree/constraints.txt")" $(wanted_pins) \
    || fail "Expected the packages of constraints.txt, found the error above: see to the network and to the free storage."
  for cuda in "$(packages_of_venv)"/nvidia*; do
    [ ! -e "$cuda" ] || fail "Expected a CPU build of torch, found one with ${cuda##*/}: set LORAD_TORCH_INDEX to a package index with CPU builds and remove $(quoted "$venv")."
  done
}
