#!/bin/bash
test_description='packages: install, upgrade under a running job, remove'
instance_size=0
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

need_program
build=$(dirname "$program")
if ! command -v dh >/dev/null || [ "$(id -u)" != 0 ]; then
	skip_all="needs debhelper, and root"
	test_done
fi
# Without the module swap of lib.sh: the installed drop-in has to load the module.
unset FLUX_MODULE_PATH_PREPEND FLUX_MODPROBE_PATH_APPEND

# A debug build is large.
export DPKG_DEB_COMPRESSOR_TYPE=none DEB_BUILD_OPTIONS="nostrip noautodbgsym"
prefix=$(cd "$(dirname "$(command -v flux)")/.." && pwd)
root=$PWD/root
mkdir -p "$root/var/lib/dpkg/updates" "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/triggers"
touch "$root/var/lib/dpkg/status" "$root/var/lib/dpkg/available"
# flux-core is no package here, so that nothing holds its directories.
dpkg_in_root() {
	dpkg --root="$root" --force-depends --force-script-chrootless --log="$PWD/dpkg.log" "$@"
}
installed() {
	(cd "$root" && find . ! -type d -not -path './var/lib/dpkg/*' | sort)
}
# usage: start_installed COMMAND...
start_installed() {
	FLUX_CONNECTOR_PATH=$root$prefix/lib/flux/connectors \
	FLUX_EXEC_PATH_PREPEND=$root$prefix/libexec/flux/cmd \
	FLUX_MODULE_PATH_PREPEND=$root$prefix/lib/flux/modules \
	FLUX_MODPROBE_PATH_APPEND=$root$prefix/share/flux/modprobe:$root$prefix/libexec/flux/modprobe \
		run_instance 2 "$@"
}
# usage: with_prefix DIRECTORY COMMAND... Flux has the files of a root, with no variable that says so.
with_prefix() {
	unshare --mount sh -c 'mount -t overlay overlay -o "lowerdir=$0:$1" "$1" && shift && exec "$@"' \
		"$1$prefix" "$prefix" "${@:2}"
}
# usage: modules_in DIRECTORY. Which job-exec an instance loads that has the files of a root.
modules_in() {
	mkdir -p "$1$prefix" &&
		with_prefix "$1" flux start --test-size=1 flux module list >module-list &&
		grep -o "^job-exec[^ ]*" module-list
}
mkdir -p layer
! unshare --mount mount -t overlay overlay -o "lowerdir=layer:$prefix" "$prefix" || test_set_prereq OVERLAY

test_expect_success 'two packages are made, for this flux-core' '
	"$top/packaging/deb" --build "$build" --prefix "$prefix" --version 0.1.0 old >made &&
	"$top/packaging/deb" --build "$build" --prefix "$prefix" --version 0.1.1 new &&
	test "$(wc -l <made)" = 2 &&
	for file in $(cat made); do
		dpkg-deb -f "$file" Depends | grep "flux-core (>= 0.88), flux-core (<< 0.89~)" || return 1
	done &&
	dpkg-deb -f "$(grep -v connector made)" Recommends | grep "systemd (>= 252)"
'
# usage: listed PACKAGE...
listed() {
	local file
	for file; do dpkg-deb -c "$file"; done | sed -n "s/ -> .*//; s/.*\( \.\/.*[^/]\)$/\1/p" | sort
}
test_expect_success 'what they have is what install writes, and the program' '
	listed $(cat made) >have &&
	for path in lib/flux/modules/job-exec-rs.so lib/flux/connectors/resume.so bin/job-exec-rs \
		libexec/flux/cmd/flux-job-exec-rs share/man/man1/job-exec-rs.1 \
		share/flux/modprobe/modprobe.d/50-job-exec-rs.toml libexec/flux/modprobe/rc1.d/50-job-exec-rs.py
	do
		grep -x " \.$prefix/$path" have || return 1
	done &&
	test_must_fail grep "etc/flux/modprobe" have
'
test_expect_success 'without a prefix they go where the Flux of the machine looks' '
	listed $("$top/packaging/deb" --build "$build" here) >have-here &&
	test_cmp have have-here
'
test_expect_success 'installed, they say the one next step' '
	dpkg_in_root -i $(cat made) >install-out 2>&1 &&
	grep "systemctl restart flux" install-out
'
cat >upgrade <<-\EOF
	mkfifo go.0 go.1 &&
	id=$(flux submit -N2 -n2 sh -c 'read line <go.$FLUX_TASK_RANK') &&
	flux job wait-event -t 30 $id start &&
	flux module list | grep job-exec-rs &&
	dpkg --root="$1" --force-depends --force-script-chrootless -i new/*.deb >upgrade-out 2>&1 &&
	flux exec -r all flux module reload job-exec-rs &&
	flux run -N2 -n2 true &&
	for rank in 0 1; do echo go >go.$rank; done &&
	flux job status $id &&
	flux job-exec-rs status &&
	echo all is well
EOF
test_expect_success 'an instance runs a job, that goes on through an upgrade and a reload' '
	start_installed bash upgrade "$root" >out &&
	tail -n 1 out | grep "all is well" &&
	grep "brokers go on with 0.1.0" upgrade-out &&
	grep "flux exec -r all flux module reload job-exec-rs" upgrade-out
'
test_expect_success OVERLAY 'Flux finds the files where they are' '
	test "$(modules_in "$root")" = job-exec-rs
'
test_expect_success 'the command is beside flux, and Flux has it under its name' '
	test "$("$root$prefix/bin/job-exec-rs" --version)" = "$("$program" --version)" &&
	test "$("$root$prefix/libexec/flux/cmd/flux-job-exec-rs" --version)" = "$("$program" --version)"
'
# A node keeps what jobs need. A root that is not the node's own has no jobs.
cat >remove-too-early <<-\EOF
	id=$(flux submit sleep inf) &&
	flux job wait-event -t 30 $id start &&
	! unshare --mount sh -c 'mount -t overlay overlay -o "lowerdir=$0:$1" "$1" && shift && exec "$@"' \
		"$1$2" "$2" sh control/prerm remove 2>refused &&
	flux cancel $id &&
	flux job wait-event -t 30 $id clean &&
	echo "$id" >running
EOF
test_expect_success UNITS,OVERLAY 'while a job runs the package stays, and says which and what to do' '
	dpkg-deb -e new/job-exec-rs_*.deb control &&
	start_installed bash remove-too-early "$root" "$prefix" &&
	grep "flux cancel .*$(cut -c2- running)" refused
'
! command -v lintian >/dev/null || test_set_prereq LINTIAN
test_expect_success LINTIAN 'for a Flux in /usr lintian finds no error' '
	env -u DPKG_DEB_COMPRESSOR_TYPE -u DEB_BUILD_OPTIONS \
		"$top/packaging/deb" --build "$build" --prefix /usr usr >made-usr &&
	test "$(echo usr/*.deb | wc -w)" = 2 && ls usr/symbols/*dbgsym*.deb &&
	lintian --fail-on error --allow-root $(cat made-usr)
'
# usage: remove OPTION
remove() {
	dpkg_in_root "$1" job-exec-rs job-exec-rs-connector &&
	installed >left &&
	test_must_be_empty left
}
test_expect_success 'removed, and not purged, they leave nothing' '
	remove --remove
'
test_expect_success OVERLAY 'and Flux starts with its own job-exec' '
	test "$(modules_in "$root")" = job-exec
'
test_expect_success 'what was removed, and not purged, says the one next step again' '
	dpkg_in_root -i new/*.deb >again-out 2>&1 &&
	grep "systemctl restart flux" again-out
'
# usage: flux_core VERSION. A package of that name.
flux_core() {
	mkdir -p "core-$1/DEBIAN" &&
		printf "%s\n" "Package: flux-core" "Version: $1" "Architecture: all" "Maintainer: nobody" \
			"Description: none" >"core-$1/DEBIAN/control" &&
		dpkg-deb --root-owner-group --build "core-$1" "core-$1.deb"
}
test_expect_success 'a flux-core that was tried can come, and no other' '
	flux_core 0.88.0-1 && flux_core 0.88.1-1 && flux_core 0.89.0-1 &&
	dpkg --root="$root" --log="$PWD/dpkg.log" -i core-0.88.0-1.deb core-0.88.1-1.deb &&
	test_must_fail dpkg --root="$root" --log="$PWD/dpkg.log" -i core-0.89.0-1.deb 2>core-err &&
	grep "conflict" core-err &&
	test "$(dpkg-query --root="$root" -W -f "\${Version}" flux-core)" = 0.88.1-1
'
test_expect_success 'and it cannot go without the packages' '
	test_must_fail dpkg --root="$root" --log="$PWD/dpkg.log" --remove flux-core 2>core-err &&
	grep "job-exec-rs depends on flux-core" core-err
'
test_expect_success 'purged they leave nothing, either' '
	remove --purge &&
	dpkg_in_root --purge flux-core
'
# What earlier packages had as conffiles.
conf=$prefix/etc/flux
cat >as-former <<-\EOF
	set -e
	dpkg-deb -R old/job-exec-rs_*.deb former
	mkdir -p "former$1/modprobe"
	mv "former$2"/share/flux/modprobe/modprobe.d "former$2"/libexec/flux/modprobe/rc?.d "former$1/modprobe/"
	(cd former && find . -path "./*/etc/*" -type f | sed "s/^.//") >former/DEBIAN/conffiles
	rm former/DEBIAN/preinst
	for script in postinst postrm; do printf "#!/bin/sh\n" >former/DEBIAN/$script; done
	dpkg-deb --root-owner-group --build former former.deb
EOF
test_expect_success 'of a package that had conffiles an upgrade leaves none' '
	bash as-former "$conf" "$prefix" &&
	grep "$conf/modprobe/modprobe.d/50-job-exec-rs.toml" former/DEBIAN/conffiles &&
	dpkg_in_root -i former.deb old/job-exec-rs-connector_*.deb &&
	echo "# changed" >>"$root$conf/modprobe/rc1.d/50-job-exec-rs.py" &&
	dpkg_in_root -i new/*.deb &&
	installed | grep "$conf" >in-etc &&
	test_must_fail grep "modprobe/.*\.\(toml\|py\)$" in-etc &&
	grep "50-job-exec-rs.py.dpkg-bak$" in-etc &&
	grep "shell/lua.d/50-job-exec-rs.lua" in-etc
'
test_expect_success OVERLAY 'and Flux starts with the module' '
	test "$(modules_in "$root")" = job-exec-rs
'
test_expect_success 'a downgrade has the former files' '
	dpkg_in_root -i former.deb old/job-exec-rs-connector_*.deb &&
	installed >down &&
	grep "$conf/modprobe/rc3.d/50-job-exec-rs.py$" down &&
	test_must_fail grep "libexec/flux/modprobe" down
'
test_expect_success OVERLAY 'with which Flux starts, too' '
	test "$(modules_in "$root")" = job-exec-rs
'
test_expect_success 'upgraded again and removed it leaves what the site has changed, which nobody reads' '
	dpkg_in_root -i new/*.deb &&
	dpkg_in_root --remove job-exec-rs job-exec-rs-connector &&
	installed >left &&
	test_must_fail grep -v "dpkg-bak$" left
'
test_expect_success OVERLAY 'so Flux starts with its own job-exec' '
	test "$(modules_in "$root")" = job-exec
'
! command -v rpmbuild >/dev/null || test_set_prereq RPM
# usage: rpm_in_root ARGUMENT... Debian asks to be told that it is not for its own system.
rpm_in_root() {
	rpm --root="$PWD/rpm" --dbpath=/db --force-debian --nodeps "$@"
}
test_expect_success RPM 'RPM packages have the same files' '
	"$top/packaging/rpm" --build "$build" --prefix "$prefix" rpms >made-rpm &&
	test "$(wc -l <made-rpm)" = 2 &&
	for file in $(cat made-rpm); do
		rpm -qp --requires "$file" | grep "flux-core >= 0.88" &&
			rpm -qp --conflicts "$file" | grep "flux-core >= 0.89" || return 1
	done &&
	grep "^ \.$prefix/" have | sed "s/^ \.//" >want &&
	rpm -qpl $(cat made-rpm) | sed "s/\.gz$//" | grep "^$prefix/" | sort >have-rpm &&
	test_cmp want have-rpm
'
# On this node, where there are jobs, and with a prefix of their own.
rpm_here() {
	rpm --dbpath="$PWD/here-db" --force-debian --nodeps "$@"
}
test_expect_success RPM,UNITS 'while a job runs both stay' '
	"$top/packaging/rpm" --build "$build" --prefix "$PWD/site" rpms-site >made-site &&
	rpm_here -i $(cat made-site) &&
	systemd-run --user --unit=shell-0-f43pPJoEo-0a1b2c3d sleep inf &&
	test_must_fail rpm_here -e job-exec-rs job-exec-rs-connector 2>refused-rpm &&
	systemctl --user stop shell-0-f43pPJoEo-0a1b2c3d &&
	grep "flux cancel .*43pPJoEo" refused-rpm &&
	test -e site/lib/flux/modules/job-exec-rs.so &&
	test -e site/lib/flux/connectors/resume.so
'
test_expect_success RPM 'they say the one next step, and leave nothing when they are removed' '
	rpm_in_root -i $(cat made-rpm) >install-out &&
	grep "systemctl restart flux" install-out &&
	test -e "rpm$prefix/lib/flux/modules/job-exec-rs.so" &&
	rpm_in_root -e job-exec-rs job-exec-rs-connector &&
	find rpm ! -type d -not -path "rpm/db/*" >left &&
	test_must_be_empty left
'
test_done
