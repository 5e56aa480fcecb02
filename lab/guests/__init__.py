# SPDX-License-Identifier: GPL-2.0
"""Virtual machines, and what runs in them: topologies, QEMU's arguments, the command channel, the guest's programs.

Knows of kernels only the image it is given. The C files are static programs that need nothing in the guest but /proc
and /sys.
"""
