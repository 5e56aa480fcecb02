#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
ksft_skip=4
exitcode=0

echo "-----------------------"
echo "running compaction_test"
echo "-----------------------"
./compaction_test

echo "----------------------"
echo "running on-fault-limit"
echo "----------------------"
./on-fault-limit

exit $exitcode
