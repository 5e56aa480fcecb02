#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
run_test ./compaction_test

run_test ./on-fault-limit
