// where: node_random\(&nd->preferred\)

@declare@
identifier target;
@@
next_demotion_node(...) {
<+...
	int target;
+	nodemask_t preferred;
...+>
}

@choose@
identifier nd, target;
@@
next_demotion_node(...) {
...
 rcu_read_lock();
+	/*
+	 * node_random() reads the mask more than once, and would return
+	 * MAX_NUMNODES for one that is cleared in between. barrier() keeps
+	 * the compiler from doing the same.
+	 */
+	preferred = data_race(nd->preferred);
+	barrier();
+
-	target = node_random(&nd->preferred);
+	target = node_random(&preferred);
...
}
