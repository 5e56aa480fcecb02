#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Compares the gate's policies on the machine it runs on: nothing is booted, the policy is switched in sysfs, and CPUs
# and memory blocks go off and on under each. Needs root, a kernel with the gate, the program `toggle`
# (lab/guests/toggle.c), and a plain sh with awk: a test machine, a guest or a farm needs no Python. The numbers go to
# stdout as CSV.
#
# What it changes it notes in $STATE first, and puts back at the end, on an error and on a signal. After a kill -9
# `here.sh --restore` does that.
set -u

GATE=${GATE:-/sys/kernel/mm/numa/demotion_gate}
COUNTERS=/sys/kernel/debug/demotion_gate
STATE=${STATE:-/run/demotion-gate.state}

arms="auto always never auto2"
scenarios="cpu memory"
rounds=8
cycles=20
cpus=
blocks=
count=1
seed=1
yes=
action=run

usage() {
	cat <<END
usage: here.sh [OPTION]...
  --rounds N       how often every policy takes its turn (default $rounds)
  --cycles N       off/on cycles in a turn (default $cycles)
  --arms 'a b'     policies, in a new random order each round (default '$arms'; auto2 is auto again)
  --scenarios 's'  of cpu and memory (default '$scenarios')
  --cpus a,b       CPUs to take off and on (default: the last one)
  --blocks a,b     memory blocks (default: the last that goes off and on in a trial)
  --count N        of the CPUs and blocks found by default, take N (default $count)
  --seed N         of the random order (default $seed)
  --yes            do not ask
  --list           say what would be touched, and end
  --restore        put back what a killed run left behind, and end
END
}

say() {
	echo "$*" >&2
}

die() {
	say "here.sh: $*"
	exit 1
}

policy() {
	sed 's/.*\[\(.*\)\].*/\1/' "$GATE/policy"
}

# --- What is changed, and how it comes back ---

# Every CPU and block that may be touched, as it is now. Written whole first: a part of it would be worse than nothing.
save_state() {
	{
		echo "policy $(policy)"
		# Not with read: it reads byte by byte, and this file gives one byte then.
		echo "console $(cut -f 1 /proc/sys/kernel/printk)"
		for path in $all_cpus; do
			[ "$(cat "$path")" = 1 ] && echo "write 1 $path"
		done
		for path in $all_blocks; do
			[ "$(cat "$path")" = online ] || continue
			case $(cat "${path%/state}/valid_zones") in
			Movable*) echo "write online_movable $path" ;;
			*) echo "write online_kernel $path" ;;
			esac
		done
		echo end
	} >"$STATE.new" || die "$STATE.new: expected to write the machine's state there; nothing was touched"
	# ln refuses to replace: two runs at once must not take each other's traces for the machine's own state.
	ln "$STATE.new" "$STATE" || { rm -f "$STATE.new"; die "$STATE: another run has just begun; nothing was touched"; }
	rm -f "$STATE.new"
	sync
}

# 0 if everything is as it was.
restore_state() {
	[ -e "$STATE" ] || return 0
	left=0
	while read -r kind word path; do
		case $kind in
		policy) [ "$(policy)" = "$word" ] || echo "$word" >"$GATE/policy" || left=1 ;;
		console) echo "$word" >/proc/sys/kernel/printk || left=1 ;;
		write)
			try=0
			# A block may be busy for a moment.
			while case $(cat "$path") in 1 | online) false ;; esac && [ $try -lt 20 ]; do
				[ $try -gt 0 ] && sleep 1
				echo "$word" 2>/dev/null >"$path"
				try=$((try + 1))
			done
			case $(cat "$path") in
			1 | online) ;;
			*)
				say "here.sh: STILL OFFLINE: $path; write '$word' to it"
				left=1
				;;
			esac
			;;
		esac
	done <"$STATE"
	if [ $left != 0 ]; then
		say "here.sh: not all could be put back; $STATE has what is missing, '$0 --restore' tries again"
		return 1
	fi
	rm -f "$STATE"
}

# --- One turn ---

child=
saved=
scratch=

finish() {
	status=$?
	trap '' INT TERM HUP
	trap - EXIT
	if [ -n "$child" ]; then
		kill "$child" 2>/dev/null # it puts back what it took off, and says so by ending
		wait "$child" 2>/dev/null
	fi
	if [ -n "$saved" ]; then
		restore_state && say "policy, CPUs and memory blocks are as they were" || status=1
	fi
	[ -n "$scratch" ] && rm -rf "$scratch"
	exit $status
}

# In the background, so that a signal ends the wait at once; its output goes to a file.
toggle_into() {
	out=$1
	shift
	toggle "$@" >"$out" 2>"$scratch/errors" &
	child=$!
	wait "$child"
	result=$?
	child=
	return $result
}

counter() {
	cat "$COUNTERS/$1" 2>/dev/null
}

# round arm slot scenario
turn() {
	echo "${2%2}" >"$GATE/policy"
	[ "$(policy)" = "${2%2}" ] || die "$GATE/policy: expected ${2%2}, found $(policy)"
	case $4 in
	cpu) where="--cpus $cpus" ;;
	*) where="--blocks $blocks" ;;
	esac
	rebuilds=$(counter rebuilds)
	# shellcheck disable=SC2086
	toggle_into "$scratch/rows" "$4" --cycles "$cycles" $where || die "toggle $4: $(cat "$scratch/errors")"
	sed -n "s/^$4,/$1,$2,$3,$4,/p" "$scratch/rows"
	[ -n "$rebuilds" ] || return 0
	echo "$1,$2,$3,$4,0,,rebuilds,$(($(counter rebuilds) - rebuilds)),ok"
}

shuffle() {
	echo "$2" | awk -v seed="$1" '{
		srand(seed)
		for (i = NF; i > 1; i--) { j = int(rand() * i) + 1; word = $i; $i = $j; $j = word }
		print
	}'
}

# --- The run ---

while [ $# -gt 0 ]; do
	case $1 in
	--rounds | --cycles | --arms | --scenarios | --cpus | --blocks | --count | --seed)
		[ $# -gt 1 ] || { usage >&2; exit 2; }
		name=${1#--}
		eval "$name=\$2"
		shift
		;;
	--yes) yes=1 ;;
	--list | --restore) action=${1#--} ;;
	--help) usage; exit 0 ;;
	*) usage >&2; exit 2 ;;
	esac
	shift
done
for number in "$rounds" "$cycles" "$count" "$seed"; do
	case $number in '' | *[!0-9]*) die "expected a number, found '$number'" ;; esac
done
for arm in $arms; do
	case ${arm%2} in auto | always | never) ;; *) die "expected the policies auto, always or never, found '$arm'" ;; esac
done
for scenario in $scenarios; do
	case $scenario in cpu | memory) ;; *) die "expected the scenarios cpu or memory, found '$scenario'" ;; esac
done

[ "$(id -u)" = 0 ] || die "expected to run as root; run it with sudo"
[ -w "$GATE/policy" ] ||
	die "$GATE/policy: expected the gate's policy; this kernel ($(uname -r)) does not have it. Boot one with the series."
if [ "$action" = restore ]; then
	[ -e "$STATE" ] || { say "nothing to restore: there is no $STATE"; exit 0; }
	restore_state || exit 1
	say "policy, CPUs and memory blocks are as they were"
	exit 0
fi
command -v toggle >/dev/null ||
	die "expected the program toggle in PATH; build it with: cc -static -O2 -o toggle lab/guests/toggle.c"
[ -e "$STATE" ] && die "$STATE: a run is going on or was killed; if none is, '$0 --restore' puts back what it left"

# What may be touched. Asking toggle touches nothing.
all_cpus=
all_blocks=
for scenario in $scenarios; do
	case $scenario in
	cpu)
		all_cpus=$(toggle cpu --list --count "$count" ${cpus:+--cpus "$cpus"}) || exit 1
		[ -n "$all_cpus" ] || die "expected a CPU that can be taken offline; found none"
		cpus=$(echo "$all_cpus" | sed 's|.*/cpu\([0-9]*\)/.*|\1|' | paste -s -d, -)
		;;
	memory)
		all_blocks=$(toggle memory --list --count "$count" ${blocks:+--blocks "$blocks"} | grep '^/') || true
		[ -n "$all_blocks" ] || die "expected a memory block that is online and removable; found none (try --scenarios cpu)"
		;;
	esac
done

say "On this machine ($(uname -r)) it would, $rounds times under each of '$arms':"
[ -n "$all_cpus" ] && say "- take CPU $cpus offline and online $cycles times"
if [ -n "$blocks" ]; then
	say "- take memory block $blocks offline and online $cycles times"
elif [ -n "$all_blocks" ]; then
	numbers=$(echo "$all_blocks" | sed 's|.*/memory\([0-9]*\)/.*|\1|' | paste -s -d' ' -)
	say "- take $count memory block(s) offline and online $cycles times: the first that goes in a trial of these: $numbers"
fi
say "- switch $GATE/policy, now '$(policy)', and the console's log level."
say "All of it is put back at the end, on an error and on Ctrl-C; after a kill -9 by '$0 --restore'."
[ "$action" = list ] && exit 0
if [ -z "$yes" ]; then
	printf 'Go on? [y/N] ' >&2
	read -r answer || answer=
	case $answer in y | Y | yes) ;; *) say "nothing was touched"; exit 1 ;; esac
fi

trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
scratch=$(mktemp -d) || exit 1
save_state
saved=1
dmesg -n 1

case " $scenarios " in
*" memory "*)
	if [ -z "$blocks" ]; then
		toggle_into "$scratch/rows" memory --cycles 1 --count "$count" || die "toggle memory: $(cat "$scratch/errors")"
		blocks=$(awk -F, '$4 == "on" && $6 == "ok" { print $3 }' "$scratch/rows" | paste -s -d, -)
		[ -n "$blocks" ] || die "expected a memory block that goes off and on; none did (try --scenarios cpu)"
		say "memory block: $blocks"
	fi
	;;
esac
# The first events find cold caches; and what does not go at all is found here.
for scenario in $scenarios; do
	case $scenario in cpu) where="--cpus $cpus" ;; *) where="--blocks $blocks" ;; esac
	# shellcheck disable=SC2086
	toggle_into "$scratch/rows" "$scenario" --cycles 2 $where || die "toggle $scenario: $(cat "$scratch/errors")"
	grep -q ',off,[0-9]*,ok' "$scratch/rows" ||
		die "expected $where to go offline; found: $(tail -n 1 "$scratch/rows"). Name others."
done

echo "round,arm,slot,scenario,cycle,target,action,ns,result"
round=0
while [ $round -lt "$rounds" ]; do
	slot=0
	for scenario in $(shuffle $((seed * 1000 + 2 * round)) "$scenarios"); do
		for arm in $(shuffle $((seed * 1000 + 2 * round + 1 + slot)) "$arms"); do
			turn $round "$arm" $slot "$scenario"
			slot=$((slot + 1))
		done
	done
	round=$((round + 1))
	say "round $round of $rounds is done"
done
