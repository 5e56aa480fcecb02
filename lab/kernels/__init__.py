# SPDX-License-Identifier: GPL-2.0
"""The kernels there are, and their builds: source trees are only read; objects and caches are this room's to write.

Relies on `lab.rendering` for the series kernel. Whoever changes how objects are reused must show that the image is of
the source that was asked for.
"""
