# SPDX-License-Identifier: GPL-2.0
"""Virtual machines, and what runs in them: topologies, QEMU's arguments, the command channel, the guest's programs.

What a guest's files say of the gate is asked in `gate`, and nowhere else.

Knows of kernels only the image it is given. The C files are static programs that need nothing in the guest but /proc
and /sys.
"""
