#!/usr/bin/env bash
# Records what a person sees: record.sh NAME COLUMNS ROWS COMMAND [WORDS]
#
# Runs COMMAND in a terminal of tmux, in the folder it is started in, and writes NAME.txt, all that stands there at the end, and
# NAME.screens.txt, every screen that differed from the one half a second before. With WORDS it types Ctrl-C three seconds after
# they are first on the screen.
set -euo pipefail
name=$1 columns=$2 rows=$3 command=$4 words=${5:-}
t() { tmux -L record "$@"; }
t -f /dev/null new-session -d -s record -x "$columns" -y "$rows" "env PS1='$ ' bash --norc --noprofile"
trap 't kill-session -t record' EXIT
t set-option -t record history-limit 20000
t set-option -t record status off
until t capture-pane -t record -p | grep -q '^\$'; do sleep 0.1; done
t send-keys -t record "$command; echo \"exit code \$?\"" Enter
: > "$name.screens.txt"
last='' typed='' deadline=$((SECONDS + 900))
until grep -q '^exit code [0-9]' <<< "$last"; do
  [ $SECONDS -lt $deadline ] || { echo "no end within 15 minutes" >&2; exit 1; }
  sleep 0.5
  screen=$(t capture-pane -t record -p | sed -e :a -e '/^\n*$/{$d;N;ba' -e '}')
  [ "$screen" = "$last" ] || printf '%s\n%s\n' "=== after ${SECONDS} s" "$screen" >> "$name.screens.txt"
  if [ -n "$words" ] && [ -z "$typed" ] && grep -q "$words" <<< "$screen"; then sleep 3; t send-keys -t record C-c; typed=yes; fi
  last=$screen
done
t capture-pane -t record -p -S - | sed -e :a -e '/^\n*$/{$d;N;ba' -e '}' > "$name.txt"
