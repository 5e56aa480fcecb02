# SPDX-License-Identifier: GPL-2.0
import signal
import sys

# A command of the lab (`python3 -m lab.…`) that is still being imported has nothing to put back: Ctrl-C just ends it.
if sys.argv[0] == "-m" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
