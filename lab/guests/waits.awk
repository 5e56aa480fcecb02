# SPDX-License-Identifier: GPL-2.0
# Of a trace of synchronize_rcu(): how often it was called, and by the demotion code: if such a name called it, or stands
# on its stack.
/: synchronize_rcu <-/ { all++; counted = 0 }
/(<-|=>).*(demotion|migrat(e|ion)_target)/ && !counted { own++; counted = 1 }
END { print "waits", all + 0, own + 0 }
