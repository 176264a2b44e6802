# shellcheck shell=sh disable=SC2154 # the variables are install.sh's
# Is this a phone on which lorad can be installed, and what should its owner know first?

look_at_phone() {
  machine=$(uname -m)
  if [ "$machine" != aarch64 ]; then
    refuse "Expected a 64-bit ARM phone (uname -m: aarch64), found $machine: the compiled packages lorad needs are pinned for that alone."
  fi
  if command -v dpkg > /dev/null; then
    packages_for=$(dpkg --print-architecture)
    if [ "$packages_for" != aarch64 ]; then
      refuse "Expected a Termux for aarch64, found one for $packages_for: install the arm64-v8a or universal build of the app Termux."
    fi
  fi

  level=$(getprop ro.build.version.sdk 2> /dev/null) || level=
  case $level in
    '' | *[!0-9]*) level=unknown ;;
    *)
      if [ "$level" -lt 24 ]; then
        refuse "Expected Android 7 (API level 24) or newer, found API level $level: Termux's packages don't run there."
      fi
      ;;
  esac
  say "Termux $TERMUX_VERSION, $machine, Android API level $level"
  look_at_source
}

# The Termux of the Play Store names itself googleplay.YYYY.MM.DD; builds before 2024, and newer ones of
# the other sources, set the name of their source instead.
look_at_source() {
  source=${TERMUX_APK_RELEASE:-${TERMUX_APP__APK_RELEASE:-}}
  case $TERMUX_VERSION in
    googleplay*) source=GOOGLE_PLAY_STORE ;;
  esac
  [ "$source" = GOOGLE_PLAY_STORE ] || return 0
  say "Warning: this is the Termux of the Play Store. It has packages of its own, built apart from those that lorad's versions are pinned to, and the apps Termux:API and Termux:Boot of other sources don't work with it."
  if [ "$play_store" = no ]; then
    refuse "Expected the Termux of F-Droid or GitHub, found that of the Play Store: install the other one (the two can't be on one phone together), or try with this one: $(again --play-store)"
  fi
}

# Packages, Python environment and a small base model take about 2 GB together.
look_at_storage() {
  if [ -n "$(recorded wheels)" ]; then
    return 0
  fi
  free=$(df -Pk "$HOME" | awk 'NR == 2 { print $4 }')
  case $free in
    '' | *[!0-9]*) return 0 ;;
  esac
  if [ "$free" -lt 3145728 ]; then
    say "Warning: expected 3 GB of free storage, found $((free / 1024)) MB: the packages may not fit. What is there stays if they don't, and the same command goes on once there is room."
  fi
}
