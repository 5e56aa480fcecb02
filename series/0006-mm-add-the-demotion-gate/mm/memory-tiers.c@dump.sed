# where: ^static void dump_demotion_targets\(
# Printed at each build, so under `always` at each event, with cpus_write_lock() held.
/^static void dump_demotion_targets(/,/^}/{
s/\<pr_info(/pr_debug(/
s/^\t\t\t\tn/\t\t\t\t n/
}
