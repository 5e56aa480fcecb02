// SPDX-License-Identifier: GPL-2.0
/// The demotion targets are built behind the demotion gate only, and its key
/// is flipped by callers that hold cpus_read_lock() already. Reports
///  - a call, from anywhere but the gate, of a function that builds them,
///  - a lookup of targets that does not ask whether the gate is open,
///  - a hotplug callback, or a function that it calls, that flips a static key
///    with a function that takes cpus_read_lock() again. That deadlocks if a
///    CPU-hotplug writer waits in between.
//# A callback is what the same file registers, and what it calls is followed
//# within the file. demotion_gate_node_event() counts as a callback, for the
//# notifiers of other files call it. Calls through pointers are not followed.
///
// Confidence: High
// Comments:
// Options: --no-includes --include-headers

virtual context
virtual org
virtual report

@initialize:python@
@@

callbacks = set()
calls = {}

# A static function has no meaning outside its file.
def here(place, name):
    return (place[0].file, name)

def in_callback(place):
    seen, todo = set(), [f for f in callbacks if f[0] == place[0].file]
    todo.append(here(place, "demotion_gate_node_event"))
    while todo:
        f = todo.pop()
        if f not in seen:
            seen.add(f)
            todo += [(f[0], name) for name in calls.get(f, ())]
    return here(place, place[0].current_element) in seen

@inner@
position p;
@@

demotion_targets_build(...)
{
<...
(
establish_demotion_targets@p(...)
|
__set_migration_target_nodes@p(...)
)
...>
}

@outer@
position p;
@@

demotion_gate_build(...)
{
<...
demotion_targets_build@p(...)
...>
}

@bypass@
position p != {inner.p, outer.p};
@@

(
* establish_demotion_targets@p(...)
|
* __set_migration_target_nodes@p(...)
|
* demotion_targets_build@p(...)
)

@asks@
identifier f = {next_demotion_node, node_get_allowed_targets};
position p;
@@

f@p(...)
{
<+...
demotion_gate_is_open()
...+>
}

@unasked@
identifier f = {next_demotion_node, node_get_allowed_targets};
position p != asks.p;
@@

* f@p(...)
{
... when any
rcu_read_lock();
... when any
}

@notifier@
identifier f;
position p;
@@

(
hotplug_memory_notifier@p(f, ...)
|
hotplug_node_notifier@p(f, ...)
)

@script:python@
f << notifier.f;
p << notifier.p;
@@

callbacks.add(here(p, f))

@registered@
identifier nb;
@@

\(register_memory_notifier\|register_hotmemory_notifier\|register_node_notifier\)(&nb)

@block@
identifier registered.nb, f;
position p;
@@

struct notifier_block nb@p = { .notifier_call = f, };

@script:python@
f << block.f;
p << block.p;
@@

callbacks.add(here(p, f))

@online@
identifier f;
expression state, name, teardown;
position p;
@@

(
cpuhp_setup_state@p(state, name, f, teardown)
|
cpuhp_setup_state_cpuslocked@p(state, name, f, teardown)
|
cpuhp_setup_state_nocalls@p(state, name, f, teardown)
|
cpuhp_setup_state_nocalls_cpuslocked@p(state, name, f, teardown)
|
cpuhp_setup_state_multi@p(state, name, f, teardown)
)

@script:python@
f << online.f;
p << online.p;
@@

callbacks.add(here(p, f))

@offline@
identifier f;
expression state, name, startup;
position p;
@@

(
cpuhp_setup_state@p(state, name, startup, f)
|
cpuhp_setup_state_cpuslocked@p(state, name, startup, f)
|
cpuhp_setup_state_nocalls@p(state, name, startup, f)
|
cpuhp_setup_state_nocalls_cpuslocked@p(state, name, startup, f)
|
cpuhp_setup_state_multi@p(state, name, startup, f)
)

@script:python@
f << offline.f;
p << offline.p;
@@

callbacks.add(here(p, f))

@call@
identifier f;
position p;
@@

f@p(...)

@script:python@
f << call.f;
p << call.p;
@@

calls.setdefault(here(p, p[0].current_element), set()).add(f)

@flip@
position p : script:python() { in_callback(p) };
@@

(
* static_branch_enable@p(...)
|
* static_branch_disable@p(...)
|
* static_branch_inc@p(...)
|
* static_branch_dec@p(...)
|
* static_key_enable@p(...)
|
* static_key_disable@p(...)
|
* static_key_slow_inc@p(...)
|
* static_key_slow_dec@p(...)
)

@script:python depends on org@
p << bypass.p;
@@

coccilib.org.print_todo(p[0], "WARNING: demotion targets built behind the back of the gate")

@script:python depends on report@
p << bypass.p;
@@

coccilib.report.print_report(p[0], "WARNING: demotion targets built behind the back of the gate")

@script:python depends on org@
p << unasked.p;
@@

coccilib.org.print_todo(p[0], "WARNING: demotion targets given without asking whether the gate is open")

@script:python depends on report@
p << unasked.p;
@@

coccilib.report.print_report(p[0], "WARNING: demotion targets given without asking whether the gate is open")

@script:python depends on org@
p << flip.p;
@@

coccilib.org.print_todo(p[0], "ERROR: hotplug callback flips a static key with a function that takes cpus_read_lock()")

@script:python depends on report@
p << flip.p;
@@

coccilib.report.print_report(p[0], "ERROR: hotplug callback flips a static key with a function that takes cpus_read_lock()")
