#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# setup.sh TARGET MODULE [WORD]...: install what a target of the Makefile needs and this machine lacks, then run the
# command behind it. Its words are looked at first. The names are Debian's; behind a colon is what tells that something
# is there, if that is not a program of the package's name: a file, a module of Python, another program.
set -eu

python=${LAB_PYTHON:-/usr/bin/python3}
apt_seconds=${LAB_APT_SECONDS:-1800} # how long to wait for another apt

render="git coccinelle:spatch python3-rich:rich.py"
compiler="build-essential:gcc build-essential:/usr/include/stdio.h"
build="$compiler bc bison flex libelf-dev:/usr/include/gelf.h ccache rsync"
guest="qemu-system-x86:qemu-system-x86_64 busybox-static stress-ng cpio"
compare="python3-numpy:numpy.py python3-scipy:scipy.py python3-matplotlib:matplotlib.py python3-jinja2:jinja2.py"
lint="perl sparse codespell mypy python3-ply:ply.py python3-git:git.py python3-sphinx:sphinx.py"
units="python3-pytest:pytest.py python3-yaml:yaml.py lava-common:lava_common.py"
matrix="clang lld:ld.lld gcc-aarch64-linux-gnu:aarch64-linux-gnu-gcc"
deb="cpio debhelper:dh fakeroot kmod:depmod libssl-dev:/usr/include/openssl/ssl.h libdw-dev:/usr/include/dwarf.h"

is_there() {
	case $1 in
	linux-source-*) [ -e "/usr/src/$1.tar.xz" ] ;;
	busybox-static) program=$(command -v busybox) && ! ldd "$program" >/dev/null 2>&1 ;; # a dynamic one won't do
	*:/*) [ -e "${1#*:}" ] ;;
	*.py) "$python" -c 'import sys; from importlib.util import find_spec; sys.exit(not find_spec(sys.argv[1]))' \
		"$(basename "${1#*:}" .py)" ;;
	*) PATH=$PATH:/usr/sbin:/sbin command -v "${1#*:}" >/dev/null ;;
	esac
}

apt() {
	waited=0
	until $sudo env LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout="$apt_seconds" "$@" \
		>>"$log" 2>&1; do
		# That option is for dpkg's own lock, not for those of the lists and the archives.
		tail -n 3 "$log" | grep -qE 'Could not get lock|Unable to lock' && [ $waited -lt "$apt_seconds" ] || return 1
		[ $waited != 0 ] || echo "waiting for another apt, which is at work"
		waited=$((waited + 5))
		sleep 5
	done
}

# Install those that are not there.
need() {
	missing=
	for each in "$@"; do
		is_there "$each" || missing="$missing ${each%%:*}"
	done
	[ -n "$missing" ] || return 0
	command="apt-get install --no-install-recommends$missing"
	if ! command -v apt-get >/dev/null; then
		echo "setup: this needs what Debian calls$missing; install it with this system's own package manager" >&2
		case $missing in *linux-source-*) echo "setup: or name your own kernel tree with KSRC=" >&2 ;; esac
		exit 1
	elif [ "$(id -u)" = 0 ]; then
		sudo=
	elif command -v sudo >/dev/null; then
		sudo=sudo
	else
		echo "setup: expected root or sudo, to install these packages; found neither. Run as root:" >&2
		echo "  $command" >&2
		exit 1
	fi
	echo "installing:$missing"
	log=$(mktemp "${TMPDIR:-/tmp}/demotion-gate-setup.XXXXXX")
	# shellcheck disable=SC2086
	if ! { apt update && apt install -y --no-install-recommends $missing; }; then
		tail -n 20 "$log" >&2
		echo "setup: expected '$command' to install the packages above; it failed. The whole log: $log" >&2
		exit 1
	fi
	rm -f "$log"
}

target=$1
shift
case $target in
series | tree) needs=$render ;;
lint | reach) needs="$render $build $lint" ;;
deb) needs="$render $build $deb" ;;
shell | check-mutants) needs="$render $build $guest" ;;
demo | bench) needs="$render $build $guest $compare" ;;
here) needs="$render $compiler $compare" ;;
check) needs="$render $build $guest $compare $lint $units" ;;
check-all) needs="$render $build $guest $compare $lint $units $matrix" ;;
setup) needs="$render $build $guest $compare $lint $units $matrix $deb" ;;
clean-cache) needs="python3-rich:rich.py" ;;
*) echo "setup: expected a target of the Makefile, found $target" >&2; exit 2 ;;
esac

need "python3:$python"
sources=$("$python" -m lab.ahead "$@") || exit
case $sources in usage:*) echo "$sources"; exit ;; esac # that was --help
# shellcheck disable=SC2086
need $needs $sources
[ "$target" = setup ] || exec "$python" -m "$@"
