#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# For test farms: compares the gate's policies on this machine with lab/comparison/here.sh, whose options it takes, and prints
# NAME VALUE UNIT for each figure. All single numbers go to $CSV (default: here.csv).
set -eu

here=$(cd "$(dirname "$0")" && pwd)
csv=${CSV:-here.csv}
if ! command -v toggle >/dev/null; then
	bin=$(mktemp -d)
	trap 'rm -rf "$bin"' EXIT
	cc -static -O2 -o "$bin/toggle" "$here/../lab/guests/toggle.c"
	PATH=$PATH:$bin
fi
sh "$here/../lab/comparison/here.sh" --yes "$@" >"$csv"
sh "$here/medians.sh" <"$csv"
