# shellcheck shell=sh
# The settings of the service, ~/.config/lorad/env: lines NAME=value, empty lines, and comments that
# begin with #. They are read, never run as shell: a value reaches to the end of its line, without the
# quotes around it, and only $HOME or ~ at its beginning is replaced.

# read_settings FILE: exports them. Whoever calls it has defined broken_line NUMBER FOUND, which is
# called for a line that is none, and isn't told what that line says: it may be private.
read_settings() {
  number=0
  return_character=$(printf '\r')
  while IFS= read -r line || [ -n "$line" ]; do
    number=$((number + 1))
    line=${line%"$return_character"}
    line=${line#"${line%%[![:space:]]*}"}
    line=${line%"${line##*[![:space:]]}"}
    case $line in '' | '#'*) continue ;; esac
    line=${line#export }
    name=${line%%=*}
    value=${line#*=}
    case $name in
      "$line")
        broken_line "$number" "no = sign"
        continue
        ;;
      '' | [0-9]* | *[!A-Z0-9_]*)
        broken_line "$number" "a name that isn't of A-Z, 0-9 and _"
        continue
        ;;
    esac
    case $value in
      \"*\"?* | \'*\'?*) ;;
      \"*\") value=${value#\"} value=${value%\"} ;;
      \'*\') value=${value#\'} value=${value%\'} ;;
    esac
    # shellcheck disable=SC2016,SC2088
    case $value in
      '~/'*) value=$HOME/${value#'~/'} ;;
      '$HOME/'*) value=$HOME/${value#'$HOME/'} ;;
      '${HOME}/'*) value=$HOME/${value#'${HOME}/'} ;;
    esac
    # Whoever writes these expects the shell to replace them, and nothing would.
    # shellcheck disable=SC2016
    case $value in
      *'$'* | *'`'* | '~'*)
        broken_line "$number" 'a $, a ` or a ~ (write out what it stands for)'
        continue
        ;;
    esac
    export "$name=$value"
  done < "$1"
}
