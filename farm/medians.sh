#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# The table of lab/comparison/here.sh as figures, a line each: the median over rounds of the rounds' medians, since events of one
# round are no independent numbers, and the counters per event.
set -eu
awk -F, '
	function median(list, n,    i, j, word) {
		for (i = 2; i <= n; i++)
			for (j = i; j > 1 && list[j - 1] > list[j]; j--) { word = list[j]; list[j] = list[j - 1]; list[j - 1] = word }
		return n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2
	}
	$1 !~ /^[0-9]+$/ { next }
	{ arm = $4 "." $2; arms[arm] = 1 }
	$7 == "off" || $7 == "on" {
		if ($9 != "ok") { failed[arm]++; next }
		events[arm]++
		key = arm "." $7 "line_ms"
		keys[key] = 1
		if ($1 + 1 > rounds) rounds = $1 + 1
		value[key, $1, ++count[key, $1]] = $8 / 1e6
		next
	}
	{ counted[arm] = 1; sum[arm, $7] += $8 }
	END {
		for (key in keys) {
			n = 0
			for (r = 0; r < rounds; r++) {
				if (!count[key, r]) continue
				for (i = 1; i <= count[key, r]; i++) list[i] = value[key, r, i]
				each[++n] = median(list, count[key, r])
			}
			printf "%s %.4f ms\n", key, median(each, n)
		}
		for (arm in arms) {
			printf "%s.failed %d events\n", arm, failed[arm]
			if (counted[arm] && events[arm])
				printf "%s.rebuilds_per_event %.3f rebuilds\n", arm, sum[arm, "rebuilds"] / events[arm]
		}
	}
' | sort
