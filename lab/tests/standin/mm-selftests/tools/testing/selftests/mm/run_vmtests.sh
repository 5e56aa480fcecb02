#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
usage() {
	cat <<EOF
- compaction
	moving
- mlock
	locking
EOF
}

CATEGORY="compaction" run_test ./compaction_test

CATEGORY="mlock" run_test ./on-fault-limit

if $RUN_DESTRUCTIVE; then
./hard_one
fi
