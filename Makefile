# SPDX-License-Identifier: GPL-2.0
# The front door. `make help` says what there is.

PYTHON := /usr/bin/python3
LAB := $(PYTHON) -m lab
TREE := $(if $(KSRC),--ksrc '$(KSRC)',$(if $(KERNEL),--kernel '$(KERNEL)'))
export PYTHONDONTWRITEBYTECODE := 1

.PHONY: help setup demo check check-all check-mutants series tree shell bench lint deb
.DEFAULT_GOAL := help

help: ## what there is
	@echo 'Targets:'
	@sed -n 's/^\([a-z-]*\):.*## /  \1|/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do printf '%-16s %s\n' "$$name" "$$text"; done
	@echo
	@echo 'KERNEL=6.12 or 6.1 picks one of Debian'\''s kernels, KSRC=path takes your own tree (5.15 or later).'
	@echo 'More: TOPOLOGY= (shell), ARGS= (options of the command behind a target; try ARGS=--help).'

setup: ## install the Debian packages the lab needs
	@sh lab/setup.sh

demo: ## all set-up, then build, boot, compare, toggle the gate, and write the report
	@sh lab/setup.sh demo
	@$(LAB).comparison.demo $(TREE) $(ARGS)

check: setup ## all tests; ends with `N passed, N failed`
	@$(LAB).checks.check $(TREE) $(ARGS)

check-all: setup ## check, and the slow part: the first commit alone, the config matrix, KASAN, KCSAN, the planted faults
	@$(LAB).checks.check $(TREE) --all $(ARGS)

check-mutants: setup ## the planted faults alone
	@$(LAB).checks.mutants $(TREE) $(ARGS)

series: setup ## render build/<kernel>/series/*.patch, ready for `git am`
	@$(LAB).rendering.render series $(TREE) $(ARGS)

tree: setup ## the kernel tree with the series applied, as git commits
	@$(LAB).rendering.render tree $(TREE) $(ARGS)

shell: setup ## boot the series kernel to a shell
	@$(LAB).guests.guest shell $(TREE) --topology $(or $(TOPOLOGY),one) $(ARGS)

bench: setup ## the comparison alone; HERE=1 on this machine, which runs the series
	@$(if $(HERE),$(LAB).comparison.here,$(LAB).comparison.bench $(TREE)) $(ARGS)

lint: setup ## the static checks alone
	@$(LAB).checks.lint $(TREE) $(ARGS)

deb: setup ## installable packages of the series kernel for your own machine
	@$(LAB).kernels.build deb $(TREE) $(ARGS)
