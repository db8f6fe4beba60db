#!/bin/bash
test_description='job-exec-rs install and uninstall'
instance_size=0
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

need_program
# Without the module swap of lib.sh: the installed drop-in has to load the module.
unset FLUX_MODULE_PATH_PREPEND FLUX_MODPROBE_PATH_APPEND

module_dir=$(flux config builtin module_path)
module_dir=${module_dir%%:*}
connector_dir=$(flux config builtin connector_path)
connector_dir=${connector_dir%%:*}
conf_dir=$(flux config builtin confdir)
data_dir=$(flux config builtin datadir)
libexec_dir=$(flux config builtin libexecdir)
prefix=$(realpath "$(dirname "$(command -v flux)")/..")
dest=$PWD/dest
modprobe_path=$dest$data_dir/modprobe:$dest$libexec_dir/modprobe
installed_files() {
	(cd "$dest" && find . ! -type d | sort)
}
# usage: start_installed COMMAND...
# Starts an instance that uses the files below $dest as if they were installed.
start_installed() {
	FLUX_CONNECTOR_PATH=$dest$connector_dir \
	FLUX_MODULE_PATH_PREPEND=$dest$module_dir FLUX_MODPROBE_PATH_APPEND=$modprobe_path \
		run_instance 4 "$@"
}

test_expect_success 'install puts everything where Flux looks' '
	mkdir -p "$dest$module_dir" "$dest$data_dir/modprobe/modprobe.d" &&
	touch "$dest$module_dir/other.so" "$dest$data_dir/modprobe/modprobe.d/10-other.toml" marker &&
	python=$(flux config builtin python_path) &&
	mkdir -p "$dest$python" &&
	{ ! test -L "$python/flux" || cp -a "$python/flux" "$dest$python"; } &&
	installed_files >before &&
	"$program" install --destdir "$dest" >out &&
	installed_files >after &&
	comm -13 before after >new &&
	grep -x ".$prefix/bin/job-exec-rs" new &&
	grep -x ".$(flux config builtin exec_path)/flux-job-exec-rs" new &&
	cmp "$top/command/src/shell.lua" "$dest$conf_dir/shell/lua.d/50-job-exec-rs.lua" &&
	cmp "$top/command/src/flux.service.conf" \
		"$dest$prefix/lib/systemd/system/flux.service.d/50-job-exec-rs.conf" &&
	for unit in service timer; do
		cmp "$top/packaging/systemd/job-exec-rs-metrics.$unit" \
			"$dest$prefix/lib/systemd/system/job-exec-rs-metrics.$unit" || return 1
	done &&
	grep -x ".$connector_dir/resume.so" new &&
	grep -x ".$module_dir/job-exec-rs.so" new &&
	grep "^.$data_dir/modprobe/modprobe.d/.*\.toml$" new &&
	resolvers=$(realpath "$python/flux/uri/resolvers") &&
	cmp "$top/command/src/resume.py" "$dest$resolvers/resume.py" &&
	test -z "$(find "$resolvers" -name resume.py -newer marker)" &&
	for rc in rc1 rc3; do
		cmp "$top/command/src/$rc.py" "$dest/$(grep "^.$libexec_dir/modprobe/$rc.d/.*\.py$" new)" || return 1
	done
'
test_expect_success 'with --dry-run it says the same, and does nothing' '
	"$program" install --destdir "$PWD/dry" --dry-run >dry-out &&
	test_must_fail test -e dry &&
	sed "s|^would write $PWD/dry/|./|" dry-out | sort >would &&
	test_cmp new would
'
test_expect_success 'it is a command of Flux, and man knows it, its commands and its keys' '
	cp -r "$dest$(flux config builtin man_path)" man &&
	test "$(FLUX_EXEC_PATH=$dest$(flux config builtin exec_path) flux job-exec-rs --version)" = \
	    "$("$program" --version)" &&
	for page in man1/job-exec-rs.1 man1/flux-job-exec-rs.1 man1/job-exec-rs-install.1 \
		man1/job-exec-rs-perilog-release.1 man5/flux-config-exec-rs.5 man7/job-exec-rs.7
	do
		test -s man/$page || return 1
	done &&
	grep "checkpoint.*interval" man/man5/flux-config-exec-rs.5
'
test_expect_success 'the program is beside flux, and flux help lists it' '
	test "$(realpath "$dest$(flux config builtin exec_path)/flux-job-exec-rs")" = \
	    "$(realpath "$dest$prefix/bin/job-exec-rs")" &&
	help=$dest$data_dir/help.d &&
	FLUX_CMDHELP_PATTERN=$help/*.json flux help >help-out 2>&1 &&
	grep "^   job-exec-rs  *look at" help-out
'
test_expect_success 'bash completes its commands' '
	cat >complete.bash <<-\EOF &&
		. "$1"
		COMP_WORDS=(job-exec-rs unin) COMP_CWORD=1
		_job__exec__rs job-exec-rs unin job-exec-rs
		echo "${COMPREPLY[@]}"
	EOF
	share=$(dirname "$dest$(flux config builtin man_path)") &&
	test "$(bash complete.bash "$share/bash-completion/completions/job-exec-rs")" = uninstall
'
test_expect_success 'it says what it did, and the one next step' '
	sed -n "/^Next/,\$p" out | grep "systemctl restart flux" &&
	test "$(sed -n "/^Next/,\$p" out | wc -l)" -eq 2 &&
	while read -r file; do grep -F "${file#.}" out || return 1; done <new
'
test_expect_success 'module and connector are the built ones, for everybody to read' '
	cmp "$JOB_EXEC_RS_MODULE" "$dest$module_dir/job-exec-rs.so" &&
	cmp "$(dirname "$JOB_EXEC_RS_MODULE")/libresume.so" "$dest$connector_dir/resume.so" &&
	while read -r file; do
		test $((0$(stat -c %a "$dest/$file") & 0444)) -eq $((0444)) || return 1
	done <new
'
test_expect_success 'nothing in the drop-in says where it was staged' '
	drop_in=$dest/$(grep toml new) &&
	test_must_fail grep -F "$dest" "$drop_in"
'
test_expect_success 'a second time is no error and changes nothing' '
	"$program" install --destdir "$dest" &&
	installed_files >again &&
	test_cmp after again
'
cat >on-all-ranks <<-\EOF
	flux exec -r all -l bash -c \
	    'grep -ho "/[^ ]*job-exec[^ ]*\.so" /proc/$(flux getattr broker.pid)/maps | sort -u' | sort
	flux run -N4 -n4 true && echo ran
EOF
test_expect_success 'an instance then has it on every rank, in place of job-exec' '
	start_installed bash on-all-ranks >actual &&
	for rank in 0 1 2 3; do
		echo "$rank: $dest$module_dir/job-exec-rs.so"
	done >expected &&
	echo ran >>expected &&
	test_cmp expected actual
'
test_expect_success 'stats are where administrators look for them' '
	start_installed flux module stats job-exec >stats &&
	jq -e ".method and .config" stats &&
	jq -e ".connector == \"resume\"" stats
'
# As the stop of a broker looks for the module that will be loaded next.
cat >which.py <<-\EOF
	import runpy, sys
	tasks = runpy.run_path(sys.argv[1])
	print(tasks["path_of"](tasks["selected"]()), tasks["file_of"]("job-exec"))
EOF
test_expect_success 'a stop tells this module from the other that a site can choose' '
	start_installed flux python which.py "$dest$libexec_dir/modprobe/rc1.d/50-job-exec-rs.py" >which &&
	echo "$dest$module_dir/job-exec-rs.so $module_dir/job-exec.so" >expected-which &&
	test_cmp expected-which which
'
# What Flux has in a prefix of its own: it finds libflux there by itself.
mkdir -p layer/bin layer/lib
for file in bin/flux lib/libflux-core.so.2; do cp -L "$prefix/$file" layer/$file; done
cp "$program" layer/bin/job-exec-rs
cat >elsewhere <<-\EOF
	unshare --mount sh -c 'mount -t overlay overlay -o "lowerdir=layer:$0" "$0" &&
	    mount --bind /dev/null /etc/ld.so.cache && cd / && PATH=/usr/bin:/bin && exec "$0/bin/job-exec-rs" status' "$1"
EOF
# flux-security can have another prefix.
libraries=$(ldd "$prefix/lib/libflux-core.so.2" | sed -n 's#.* => \(/.*\)/[^/]* (.*#\1#p' | sort -u | paste -sd:)
! patchelf --force-rpath --set-rpath "$prefix/lib:$libraries" layer/bin/flux layer/lib/libflux-core.so.2 ||
	! unshare --mount mount -t overlay overlay -o "lowerdir=layer:$prefix" "$prefix" || test_set_prereq LAYER
test_expect_success LAYER 'the command finds libflux where the linker does not look, and flux not in PATH' '
	start_installed bash elsewhere "$prefix" >status &&
	grep "^0 jobs" status
'
test_expect_success 'a reload does not bring upstream back' '
	start_installed bash -c "
		name=\$(flux module list | grep -o \"^job-exec[^ ]*\") &&
		flux module reload \$name &&
		flux run -n1 true && bash on-all-ranks" >actual &&
	test_cmp expected actual
'
# usage: exit_timeout OPTION... What flux-shell makes of it, in an instance whose brokers come back if
# their state directory does.
mkdir -p rc
cat >rc/say.lua <<-\EOF
	shell.log ("exit-timeout is " .. tostring (shell.options["exit-timeout"]))
EOF
exit_timeout() {
	FLUX_CONNECTOR_PATH=$dest$connector_dir FLUX_MODULE_PATH_PREPEND=$dest$module_dir \
	FLUX_MODPROBE_PATH_APPEND=$modprobe_path \
	FLUX_SHELL_RC_PATH=$dest$conf_dir/shell/lua.d:$PWD/rc \
		flux start --test-size=1 "$start" flux run "$@" true 2>&1 |
		sed -n "s/.*exit-timeout is //p"
}
test_expect_success 'shells wait longer for each other where brokers come back, if nobody has set it' '
	start=-Sstatedir=$PWD/state && mkdir -p state &&
	test "$(exit_timeout)" = 150s &&
	test "$(exit_timeout -o exit-timeout=7s)" = 7s &&
	site=$dest$conf_dir/shell/lua.d/10-site.lua &&
	echo "shell.options[\"exit-timeout\"] = shell.options[\"exit-timeout\"] or \"10m\"" >$site &&
	test "$(exit_timeout)" = 10m &&
	test "$(exit_timeout -o exit-timeout=7s)" = 7s &&
	rm $site &&
	start=-Slog-level=7 &&
	test "$(exit_timeout)" = nil
'
# usage: boxed COMMAND... It runs with a Flux that has no connector but flux-core's own.
mkdir -p box && cp "$(flux config builtin connector_path | cut -d: -f1)"/*.so box/ && rm -f box/resume.so
cat >boxed <<-EOF
	#!/bin/sh
	exec env -u FLUX_CONNECTOR_PATH_PREPEND FLUX_CONNECTOR_PATH=$PWD/box "\$@"
EOF
chmod +x boxed
# usage: in_job OPTION... COMMAND... In a job of an instance with what flux-shell reads there.
shell_dir=$dest$conf_dir/shell/lua.d
in_job() {
	FLUX_CONNECTOR_PATH=$dest$connector_dir FLUX_MODULE_PATH_PREPEND=$dest$module_dir \
	FLUX_MODPROBE_PATH_APPEND=$modprobe_path \
	FLUX_SHELL_RC_PATH=$shell_dir flux start --test-size=1 flux run "$@"
}
test_expect_success 'a task with another Flux reaches its instance by the option, and not without it' '
	test_must_fail in_job ./boxed flux getattr size >out 2>&1 && grep "No such file" out &&
	test_must_fail in_job -o task-uri=resume ./boxed flux getattr size >out 2>&1 &&
	grep "No such file" out &&
	in_job -o task-uri=local ./boxed flux getattr size >out && test_cmp - out <<-EOF &&
		1
	EOF
	in_job -o task-uri=local printenv FLUX_URI >out && grep "^local:///" out &&
	in_job printenv FLUX_URI >out && grep "^resume:///" out
'
test_expect_success 'a task finds the connector that only its broker knows' '
	in_job --env=-FLUX_CONNECTOR_PATH --env=-FLUX_CONNECTOR_PATH_PREPEND flux getattr size >out &&
	test_cmp - out <<-EOF
		1
	EOF
'
test_expect_success 'another Flux can be an instance in a job, and tells its URI' '
	in_job -o task-uri=local ./boxed flux start flux run echo inside >out && grep inside out
'
test_expect_success 'another value is an error that names the option' '
	! in_job -o task-uri=tcp true >out 2>&1 &&
	grep "task-uri=tcp: must be local or resume" out
'
test_expect_success 'a site can choose it for all jobs, and a job against it' '
	mkdir site && cp "$shell_dir/50-job-exec-rs.lua" site/ && shell_dir=$PWD/site &&
	cat >site/40-site.lua <<-\EOF &&
		shell.options["task-uri"] = shell.options["task-uri"] or "local"
	EOF
	in_job printenv FLUX_URI >out && grep "^local:///" out &&
	in_job -o task-uri=resume printenv FLUX_URI >out && grep "^resume:///" out
'
cat >refused <<-\EOF
	id=$(flux submit sleep inf) && flux job wait-event -t 60 $id start >/dev/null &&
	echo "$id" && ! "$program" uninstall --prefix "$PWD/prefix" 2>&1
	flux cancel "$id" && flux job wait-event -t 60 $id clean >/dev/null
EOF
test_expect_success UNITS 'while a job runs on the node nothing is removed, and it is named' '
	"$program" install --prefix "$PWD/prefix" && find prefix ! -type d | sort >there &&
	program=$program start_installed bash refused >out &&
	id=$(head -n 1 out) && id=${id#?} &&
	grep "nobody would own them: .*$id" out && grep "flux cancel .*$id" out &&
	find prefix ! -type d | sort >still && test_cmp there still && rm -r prefix
'
test_expect_success 'uninstall removes exactly that' '
	"$program" uninstall --destdir "$dest" &&
	installed_files >now &&
	test_cmp before now
'
test_expect_success 'an instance then has upstream again' '
	rm "$dest$module_dir/other.so" &&
	start_installed flux module list >modules &&
	test_must_fail grep job-exec-rs modules &&
	grep "^job-exec " modules
'
former=$dest$conf_dir/modprobe
former_page=$dest$(flux config builtin man_path)/man1/job-exec-rs-sim.1
leave_former() {
	mkdir -p "$former"/{modprobe,rc1,rc3}.d "$(dirname "$former_page")" &&
	touch "$former_page" &&
	touch "$former/modprobe.d/50-job-exec-rs.toml" "$former"/rc{1,3}.d/50-job-exec-rs.py \
		"$former/modprobe.d/other.toml"
}
test_expect_success 'install removes what earlier releases wrote elsewhere' '
	leave_former &&
	"$program" install --destdir "$dest" >out &&
	grep "removed $former/rc1.d/50-job-exec-rs.py" out &&
	test_must_fail test -e "$former_page" &&
	test "$(find "$former" -type f)" = "$former/modprobe.d/other.toml"
'
test_expect_success 'and so does uninstall' '
	leave_former &&
	"$program" uninstall --destdir "$dest" &&
	test "$(find "$former" -type f)" = "$former/modprobe.d/other.toml" &&
	rm "$former/modprobe.d/other.toml"
'
test_expect_success 'uninstall of what is not there says so, and is no failure' '
	"$program" uninstall --destdir "$dest" >out 2>&1 &&
	test -s out
'
test_expect_success 'another prefix' '
	"$program" install --prefix "$PWD/prefix" &&
	find prefix -name job-exec-rs.so | grep . &&
	find prefix -path "*/modprobe/modprobe.d/*.toml" | grep . &&
	"$program" uninstall --destdir / --prefix "$PWD/prefix" &&
	test "$(find prefix ! -type d)" = ""
'
test_expect_success 'a place that cannot be written to is an error that names it' '
	touch file &&
	test_must_fail "$program" install --prefix "$PWD/file" 2>err &&
	grep "$PWD/file" err
'

test_done
