# Functions of the scripts in this folder.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[ -x "$root/.venv/bin/carbon" ] || bash "$root/scripts/install" packages
export PATH="$root/.venv/bin:$PATH" PYTHONPATH="$root"

note() { printf '%s\n' "$*" >&2; }
fail() { note "error: $*" && exit 2; }
need_file() { [ -f "$1" ] || fail "$1: no such file"; }
file_facts() { [ ! -f "$1" ] || stat -Lc ' (%s bytes of %y)' -- "$1"; }

# step RESULT COMMAND...: runs the command unless its result exists.
step() {
  [ ! -e "$1" ] || return 0
  printf '\n$' >&2 && printf ' %q' "${@:2}" >&2 && note
  "${@:2}"
}

# same_settings FOLDER NAME=VALUE...: stores the settings that a folder is made with; refuses others.
# A file is compared by the size and the time of its last change, too.
same_settings() {
  local folder=$1 stored=$1/settings.txt setting
  local now=$(for setting in "${@:2}"; do echo "$setting$(file_facts "${setting#*=}")"; done)
  if [ ! -e "$stored" ]; then
    [ -z "$(ls -A "$folder" 2> /dev/null)" ] || fail "$folder: holds other files; name another OUTPUT"
    mkdir -p "$folder" && echo "$now" > "$stored"
  fi
  local others=$(grep -vxFf "$stored" <<< "$now")
  [ -z "$others" ] || fail "$folder: was made with settings other than ${others//$'\n'/, }; name another OUTPUT"
}
