# SPDX-License-Identifier: GPL-2.0
"""What `make check` and `make check-all` run. A check is a boot or a tool's verdict on the rendered series.

Relies on the other rooms, is relied on by none. A new check needs a planted fault that makes it fail (`mutants`).
"""
