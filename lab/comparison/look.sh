#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# For a guest: the nodes with memory, the gate and the rebuilds, three times. Only the shell's own words, and only while
# nothing changes: a sample taken in the middle of a write would show a gate that does not fit the nodes.
look() {
	for _ in 1 2 3; do
		usleep 100000 2>/dev/null || sleep 0.1
		read -r up _ </proc/uptime
		read -r nodes </sys/devices/system/node/has_memory
		open=
		rebuilds=
		[ -e /sys/kernel/mm/numa/demotion_gate/open ] && read -r open </sys/kernel/mm/numa/demotion_gate/open
		[ -e /sys/kernel/debug/demotion_gate/rebuilds ] && read -r rebuilds </sys/kernel/debug/demotion_gate/rebuilds
		echo "seen,$up,$nodes,$open,$rebuilds"
	done
}
look
