#!/bin/sh
# Puts Qualcomm's libraries for Android, which you supply, where lorad looks for them, and checks them.
#
#   sh termux/fetch-qnn.sh                          what is needed, and what of it is there
#   sh termux/fetch-qnn.sh A.aar B.aar              takes it out of the two archives
#   sh termux/fetch-qnn.sh FOLDER                   … of a QAIRT SDK, or of a folder with such files
#   sh termux/fetch-qnn.sh --accept-licence URL…    downloads the archives first, with curl
#
# lorad brings none of them and downloads nothing by itself: they have Qualcomm's own licence.
# Exit codes: 0 all that is needed is there and fits, 1 it isn't, 2 wrong arguments.
set -eu

folder="${LORAD_QNN_LIBRARIES:-${LORAD_HOME:-$HOME/.local/share/lorad}/qnn}"
provider=libonnxruntime_providers_qnn.so
parts="$provider libQnnHtp.so libQnnHtpPrepare.so libQnnSystem.so"
accepted=no
new=""

say() { printf '%s\n' "$*"; }

fail() {
    say "fetch-qnn: $*" >&2
    exit 1
}

usage() {
    sed -n '2,9s/^#[ ]\{0,1\}//p' "$0"
}

clean() { [ -z "$new" ] || rm -rf "$new"; }

needed() {
    cat << END
Needed, for Android on 64-bit ARM:
  $provider                the NPU's provider for onnxruntime
  libQnnHtp.so libQnnHtpPrepare.so libQnnSystem.so   QNN
  libQnnHtpV${arch:-??}Stub.so libQnnHtpV${arch:-??}Skel.so       its two halves for this phone's NPU${arch:+ (V$arch)}
They are in two archives of Maven Central:
  com.qualcomm.qti:onnxruntime-android-qnn   the provider (MIT licence), a release after 2.4.0,
                                             which finds no NPU on Android (its issue 679)
  com.qualcomm.qti:qnn-runtime               QNN (Qualcomm's licence, which its page there names);
                                             take the release that the provider's notes name
or, in place of the second one, in a QAIRT SDK of Qualcomm (lib/aarch64-android and
lib/hexagon-v??/unsigned). Get them in a browser, accept the licence, and give the files to
  sh $0 onnxruntime-android-qnn-….aar qnn-runtime-….aar
END
}

# The phone's own name for its SoC, unless LORAD_SOC tells; getprop may hang.
soc() {
    if [ -n "${LORAD_SOC:-}" ]; then
        say "$LORAD_SOC"
    elif command -v getprop > /dev/null 2>&1; then
        timeout 5 getprop ro.soc.model 2> /dev/null < /dev/null || :
    fi
}

# The version of the NPU (HTP) of a SoC; nothing for one that isn't known.
arch_of() {
    case "$1" in
        SM8550 | SM8550P | SM8550-*) say 73 ;;
        SM8650 | SM8650P | SM8650-*) say 75 ;;
        SM8750 | SM8750P | SM8750-*) say 79 ;;
        SM8850 | SM8850P | SM8850-*) say 81 ;;
    esac
}

# Those that are wanted by name; of an unknown SoC the halves for every version of the NPU.
wanted() {
    case " $parts " in
        *" $1 "*) return 0 ;;
    esac
    case "$1" in
        "libQnnHtpV${arch}Stub.so" | "libQnnHtpV${arch}Skel.so") return 0 ;;
        libQnnHtpV[0-9][0-9]Stub.so | libQnnHtpV[0-9][0-9]Skel.so) [ -z "$arch" ] ;;
        *) return 1 ;;
    esac
}

take_file() {
    name="${1##*/}"
    if [ -f "$1" ] && wanted "$name"; then
        cp "$1" "$new/$name" || fail "$1 can't be copied to $new: free some space, and try again"
    fi
}

take_archive() {
    command -v unzip > /dev/null 2>&1 || fail "expected unzip, found none: pkg install unzip"
    mkdir -p "$new/unpacked"
    unzip -q -o -j "$1" 'jni/arm64-v8a/*.so' -d "$new/unpacked" > "$new/unzip.log" 2>&1 \
        || fail "expected an .aar with jni/arm64-v8a/*.so, found $1, which unzip can't take it out of"
    for file in "$new"/unpacked/*.so; do take_file "$file"; done
    rm -rf "$new/unpacked"
}

take_folder() {
    for file in "$1"/*.so "$1"/lib/aarch64-android/*.so "$1"/lib/hexagon-v*/unsigned/*.so; do
        take_file "$file"
    done
    for file in "$1"/*.aar; do
        if [ -f "$file" ]; then take_archive "$file"; fi
    done
}

download() {
    [ "$accepted" = yes ] || fail "$1 is under Qualcomm's own licence: read it where the file is" \
        "offered, and say that you accept it with --accept-licence"
    command -v curl > /dev/null 2>&1 || fail "expected curl, found none: pkg install curl"
    curl --fail --silent --show-error --location --proto '=https' --proto-redir '=https' \
        --output "$new/download.aar" "$1" || fail "$1 can't be downloaded: get it in a browser"
    take_archive "$new/download.aar"
    rm -f "$new/download.aar"
}

# Bytes of a file's head, in hexadecimal: count, offset, file.
bytes() { dd if="$3" bs=1 skip="$2" count="$1" 2> /dev/null | od -An -tx1 | tr -d ' \n'; }

# The version that Qualcomm's builds carry, as v2.49.0.260812; nothing if it can't be read.
version_of() {
    LC_ALL=C tr -c 'v0-9.' '\n' < "$1" \
        | grep -o -E 'v[0-9]+\.[0-9]+\.[0-9]+\.[0-9]{6}' | head -n 1 || :
}

# Whether a library is one of its kind; says what it is if not.
check_kind() {
    name="${1##*/}"
    if [ "$(bytes 4 0 "$1")" != 7f454c46 ]; then
        say "$name: expected a library (ELF), found none: take it from its archive again"
        return 1
    fi
    kind="class $(bytes 1 4 "$1"), machine $(bytes 2 18 "$1")"
    case "$1" in
        *Skel.so)
            [ "$kind" = "class 01, machine a400" ] && return 0
            say "$name: expected a library of the DSP (QUALCOMM DSP6), found $kind: take the one of" \
                "jni/arm64-v8a or of lib/hexagon-v??/unsigned"
            return 1
            ;;
    esac
    if [ "$kind" != "class 02, machine b700" ]; then
        say "$name: expected a library for 64-bit ARM (class 02, machine b700), found $kind: take the" \
            "one of jni/arm64-v8a or of lib/aarch64-android"
        return 1
    fi
    if LC_ALL=C grep -q 'GLIBC_2\.' "$1"; then
        say "$name: expected a library for Android, found one for Linux with glibc, which Android" \
            "can't load: take the one of jni/arm64-v8a or of lib/aarch64-android"
        return 1
    fi
}

# Checks what lies in a folder: all there, of its kind, of one release. Says what isn't so.
check() {
    wrong=0
    for name in $parts; do
        [ -f "$1/$name" ] && continue
        say "missing: $name"
        wrong=1
    done
    halves=""
    for stub in "$1"/libQnnHtpV??Stub.so; do
        number="${stub##*/libQnnHtpV}"
        number="${number%Stub.so}"
        if [ -f "$1/libQnnHtpV${number}Skel.so" ] && [ "${arch:-$number}" = "$number" ]; then
            halves="$halves V$number"
        fi
    done
    if [ -z "$halves" ]; then
        for half in Stub Skel; do
            [ -f "$1/libQnnHtpV$arch$half.so" ] || say "missing: libQnnHtpV${arch:-??}$half.so"
        done
        wrong=1
    fi
    first=""
    for file in "$1"/*.so; do
        [ -f "$file" ] || continue
        check_kind "$file" || wrong=1
        case "$(ls -l "$file")" in
            -rw-r--r--*) ;;
            *)
                say "${file##*/}: expected mode 0644, without which the DSP may not read it: chmod" \
                    "0644 $file"
                wrong=1
                ;;
        esac
        case "${file##*/}" in libQnn*) version="$(version_of "$file")" ;; *) version="" ;; esac
        [ -n "$version" ] || continue
        if [ -z "$first" ]; then
            first="$version" of="${file##*/}"
        elif [ "$version" != "$first" ]; then
            say "${file##*/} is of $version, $of of $first: expected one release for all, take" \
                "them from one archive or SDK"
            wrong=1
        fi
    done
    if [ "$wrong" = 0 ]; then
        say "All is there, for${halves}${first:+, of $first}."
    fi
    return "$wrong"
}

for argument in "$@"; do
    case "$argument" in
        -h | --help)
            usage
            exit 0
            ;;
        --accept-licence) accepted=yes ;;
        -*)
            usage >&2
            exit 2
            ;;
    esac
done

model="$(soc)"
arch="$(arch_of "$model")"
if [ -n "$arch" ]; then
    say "This phone's SoC is $model, its NPU a V$arch."
else
    say "This phone's SoC is ${model:-not told}, which lorad doesn't know: all versions of the NPU" \
        "are taken. If yours is like a SM8550, SM8650, SM8750 or SM8850, set LORAD_SOC to that."
fi

sources=0
umask 077
trap clean EXIT
trap 'exit 1' HUP INT TERM
for source in "$@"; do
    [ "$source" = --accept-licence ] && continue
    if [ "$sources" = 0 ]; then
        mkdir -p "${folder%/*}"
        new="$(mktemp -d "${folder%/*}/.qnn-XXXXXX")"
    fi
    sources=$((sources + 1))
    case "$source" in
        https://*) download "$source" ;;
        *://*) fail "expected an https:// address, found $source: name one, or a file" ;;
        *)
            if [ -d "$source" ]; then
                take_folder "$source"
            elif [ -f "$source" ]; then
                take_archive "$source"
            else
                fail "expected an .aar file or a folder, found nothing at $source: name one that is there"
            fi
            ;;
    esac
done

if [ "$sources" = 0 ]; then
    if [ -d "$folder" ] && check "$folder"; then
        say "\`lorad doctor --npu\` tests them."
        exit 0
    fi
    needed
    say "They go to $folder (LORAD_QNN_LIBRARIES)."
    exit 1
fi

# What was given counts together with what is there already.
for file in "$folder"/*.so; do
    if [ -f "$file" ] && [ ! -f "$new/${file##*/}" ] && wanted "${file##*/}"; then
        cp "$file" "$new/"
    fi
done
rm -f "$new/unzip.log"
chmod -R u=rwX,go=rX "$new"
if ! check "$new"; then
    needed
    fail "nothing was put in place: get what is missing or wrong, and give all files at once"
fi
mkdir -p "$folder"
for file in "$new"/*.so; do
    mv -f "$file" "$folder/"
done
chmod 0755 "$folder"
say "In place at $folder. You use them under Qualcomm's licence; \`lorad doctor --npu\` tests them."
