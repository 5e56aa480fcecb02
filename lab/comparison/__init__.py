# SPDX-License-Identifier: GPL-2.0
"""The comparison and its report, in guests and on the user's own machine; and the demo, which is a comparison first.

A run is a folder: whoever measures writes it, whoever reports reads nothing else (`runs` says what is in it).
How much is measured is a table, designs.toml; so is what is claimed beforehand, and said of it all: report.toml.
"""
