# SPDX-License-Identifier: GPL-2.0
"""From series/ to patches. Reads a kernel tree and never writes it; relies on git, spatch and `lab.common` alone.

What is rendered must depend on series/, the new files and the tree, and on nothing else: the same input gives the same
bytes. A line that no edit wrote is refused.
"""
