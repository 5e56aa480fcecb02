# SPDX-License-Identifier: GPL-2.0
# The front door. `make help` says what there is.

RUN = @sh lab/setup.sh $@
quoted = '$(subst ','\'',$(1))'
TREE := $(strip $(if $(KERNEL),--kernel $(call quoted,$(KERNEL))) $(if $(KSRC),--ksrc $(call quoted,$(KSRC))))
export PYTHONDONTWRITEBYTECODE := 1
$(if $(filter-out 1,$(HERE)),$(error HERE=$(HERE): expected 1, or nothing))
$(if $(and $(HERE),$(TREE)),$(error HERE=1 measures the kernel that runs: expected no KERNEL= and no KSRC=))

.PHONY: help setup demo check check-all check-mutants series tree shell bench reach lint deb clean clean-cache
.DEFAULT_GOAL := help

help: ## what there is
	@echo 'Targets:'
	@sed -n 's/^\([a-z-]*\):.*## /  \1|/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do printf '%-16s %s\n' "$$name" "$$text"; done
	@echo
	@echo 'KERNEL=6.12, 6.1 or latest picks one of Debian'\''s kernels, KSRC=path takes your own tree (5.15 or later).'
	@echo 'More: TOPOLOGY= (shell), ARGS= (options of the command behind a target; try ARGS=--help).'

setup: ## install all that any of these needs; each installs what it needs itself
	$(RUN) lab.checks.check $(TREE)

demo: ## all set-up, then build, boot, compare, toggle the gate, and write the report
	$(RUN) lab.comparison.demo $(TREE) $(ARGS)

check: ## all tests; ends with `N passed, N failed`
	$(RUN) lab.checks.check $(TREE) $(ARGS)

check-all: ## check, and the slow part: a boot after each fix, the config matrix, KASAN, KCSAN, the planted faults
	$(RUN) lab.checks.check $(TREE) --all $(ARGS)

check-mutants: ## the planted faults alone
	$(RUN) lab.checks.mutants $(TREE) $(ARGS)

series: ## render build/<kernel>/series/*.patch, ready for `git am`
	$(RUN) lab.rendering.render series $(TREE) $(ARGS)

tree: ## the kernel tree with the series applied, as git commits
	$(RUN) lab.rendering.render tree $(TREE) $(ARGS)

shell: ## boot the series kernel to a shell
	$(RUN) lab.guests.guest $(TREE) --topology '$(or $(TOPOLOGY),one)' $(ARGS)

bench: ## the comparison alone; HERE=1 on this machine, which runs the series
	$(if $(HERE),$(RUN:bench=here) lab.comparison.here,$(RUN) lab.comparison.bench) $(TREE) $(ARGS)

reach: ## for each kernel tree in the folder TREES=: does the series render, apply and compile?
	$(RUN) lab.checks.reach --trees $(call quoted,$(or $(TREES),$(error TREES=folder: expected a folder with kernel trees in it))) $(ARGS)

lint: ## the static checks alone
	$(RUN) lab.checks.lint $(TREE) $(ARGS)

deb: ## installable packages of the series kernel for your own machine
	$(RUN) lab.kernels.build $(TREE) $(ARGS)

clean: ## remove build/: the patches, the trees, the reports of this checkout
	@rm -rf build

clean-cache: ## remove what is cached of kernels that are gone or not in use; ARGS=--all: of all
	$(RUN) lab.kernels.prune $(ARGS)
