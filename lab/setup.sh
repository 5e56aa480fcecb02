#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Install what the lab needs and this Debian machine lacks. Changes nothing when all is there.
# `setup.sh demo` leaves out what only the checks and `make deb` use: a first demo is to be quick.
set -eu

DEMO="
build-essential bc bison flex libelf-dev cpio xz-utils ccache git coccinelle
linux-source-6.12 linux-source-6.1
qemu-system-x86 seabios busybox-static stress-ng
python3 python3-rich python3-numpy python3-scipy python3-matplotlib
"
CHECK="
sparse clang lld codespell gcc-aarch64-linux-gnu
lava-common python3-pytest python3-ply python3-git python3-yaml
dwarves debhelper fakeroot kmod rsync libssl-dev libdw-dev libpython3-stdlib
"

missing=
[ "${1-}" = demo ] && CHECK=
for package in $DEMO $CHECK; do
	dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

echo "installing:$missing"
if [ "$(id -u)" = 0 ]; then
	sudo=
elif command -v sudo >/dev/null; then
	sudo=sudo
else
	echo "setup: expected root or sudo, to install these packages; found neither. Run as root:" >&2
	echo "  apt-get install --no-install-recommends$missing" >&2
	exit 1
fi
log=${TMPDIR:-/tmp}/demotion-gate-setup.$(id -u).log
if ! { $sudo apt-get update &&
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing; } >"$log" 2>&1; then
	tail -n 20 "$log" >&2
	echo "setup: expected apt-get to install the packages above; it failed. The whole log: $log" >&2
	exit 1
fi
