#!/bin/bash
test_description='users who mean harm: what they send, what they write, and what they leave running'
instance_size=4
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

if ! test_have_prereq UNITS; then
	skip_all='needs our module and a user systemd'
	test_done
fi

guest=42
# If root runs the stand-in for the IMP, the guest is another user, who needs access to the
# brokers' sockets and to this directory.
cp "$here/dummy-shell" "$here"/*.py .
chmod -R go+rX . "$TMPDIR/connectors" 2>/dev/null
chmod 755 "$TMPDIR" && chmod 1777 . # libflux lists what is above its connectors
for rank in 0 1 2 3; do
	chmod go+x "$(flux exec -r $rank flux getattr rundir)"
done
cat >"$FLUX_TEST_CONFIG/hostile.toml" <<-EOF
	[access]
	allow-guest-user = true
	[exec]
	imp = "$PWD/imp.py"
	kill-timeout = "0.5s"
	max-kill-count = 3
	peer-timeout = "2s"
	output-limit = "1M"
	output-disk-limit = "16M"
EOF

# What is beside the module, if it was built.
program=$(dirname "$JOB_EXEC_RS_MODULE")/job-exec-rs
if [ -x "$program" ]; then
	test_set_prereq COMMAND
	mkdir cmd && ln -s "$(realpath "$program")" cmd/flux-job-exec-rs && chmod 755 cmd
	export FLUX_EXEC_PATH_PREPEND=$PWD/cmd
fi

as_guest() {
	FLUX_HANDLE_USERID=$guest FLUX_HANDLE_ROLEMASK=0x2 "$@"
}
# usage: guest_submit [OPTION...] SCRIPT
# Submits a guest's job that runs bash SCRIPT as dummy-shell does. The owner submits it, because
# its signature is not real.
guest_submit() {
	flux submit --dry-run --setattr=system.exec.job_shell="$PWD/dummy-shell" "$@" |
		flux python sign-none.py $guest >signed &&
		FLUX_HANDLE_USERID=$guest flux job submit --flags=signed signed
}
victims_jobs_run() {
	local id n
	for n in $(seq "${1:-3}"); do
		id=$(flux submit -N2 -n2 true) && wait_event -q "$id" clean && flux job status "$id" && continue
		flux job eventlog "$id"
		flux job eventlog -p exec "$id"
		stats_of "$id"
		return 1
	done
}
# usage: deep_job LEVELS. Submits a job whose user attributes are nested this deep.
deep_job() {
	local levels=$1 nest
	nest=$(printf '[%.0s' $(seq "$levels"))$(printf ']%.0s' $(seq "$levels"))
	flux submit -N2 -n2 --setattr=user.deep=DEEP --dry-run true | sed "s/\"DEEP\"/$nest/" >deep.json &&
		flux job submit deep.json
}
# usage: record_size RANK JOBID. The size of the job's record, in bytes.
record_size() {
	stat -c %s "$(state_directory "$1")"/*"shell-$1-$(flux job id --to=f58plain "$2")"*.record
}
drained() {
	flux resource drain -no '{ranks} {reason}'
}

test_expect_success 'the modules take the configuration' '
	flux config reload &&
	flux exec -r all flux module reload -f job-exec &&
	flux module stats job-exec | jq -e ".config.output_limit == 1048576" &&
	flux module stats job-exec | jq -e ".config.flux_imp_path == \"$PWD/imp.py\""
'
test_expect_success 'no jobspec is too deep: it runs, and others do' '
	for levels in 110 121 122 123 124 130 500 900; do
		id=$(deep_job $levels) &&
		wait_event -q "$id" clean &&
		flux job status "$id" || return 1
	done &&
	victims_jobs_run &&
	test -z "$(drained)"
'
test_expect_success 'a guest runs jobs through the IMP' '
	id=$(guest_submit -N2 "id -u; exit 3") &&
	wait_event -q "$id" clean &&
	test_expect_code 3 flux job status "$id"
'
test_expect_success 'what its shell leaves behind ends, too, and its status is true' '
	id=$(guest_submit -N2 -n2 "trap \"\" TERM; setsid sleep inf & exit 3") &&
	wait_event -q "$id" clean &&
	test_expect_code 3 flux job status "$id" &&
	test "$(contexts "$id" exception)" = "" &&
	assert_no_units "$id" &&
	test -z "$(drained)"
'
# usage: with_stop_timer LINE... The configuration with these lines, and time for nothing else to end.
with_stop_timer() {
	cp "$FLUX_TEST_CONFIG/hostile.toml" hostile.toml &&
	{ sed "s/^kill-timeout.*/kill-timeout = \"1h\"/" hostile.toml && printf "%s\n" "$@"; } \
		>"$FLUX_TEST_CONFIG/hostile.toml" &&
	flux config reload
}
without_stop_timer() {
	cp hostile.toml "$FLUX_TEST_CONFIG/hostile.toml" && flux config reload
}
# What a shell has left behind, and that ignores SIGTERM, is killed, and its job ends.
leftovers_are_killed() {
	id=$(guest_submit -N1 "trap '' TERM; setsid sleep inf & exit 3") &&
	wait_event -q "$id" clean &&
	without_stop_timer &&
	test_expect_code 3 flux job status "$id" &&
	assert_no_units "$id"
}
test_expect_success 'the stop timer, not the kill timeout, says when the IMP is to kill it' '
	with_stop_timer "sdexec-stop-timer-sec = 1" &&
	leftovers_are_killed
'
test_expect_success 'with the signal that is configured' '
	sed "s/signal.SIGUSR1, kill_all/signal.SIGUSR2, kill_all/" imp.py >usr2.py && chmod 755 usr2.py &&
	with_stop_timer "sdexec-stop-timer-sec = 1" "sdexec-stop-timer-signal = 12" &&
	sed -i "s/imp.py/usr2.py/" "$FLUX_TEST_CONFIG/hostile.toml" &&
	flux config reload &&
	leftovers_are_killed
'
test_expect_success 'endless output ends its job with a word, and others go on' '
	id=$(guest_submit -N1 "cat /dev/zero") &&
	victims_jobs_run &&
	wait_event -q "$id" clean &&
	contexts "$id" exception >exceptions &&
	grep "more than exec.output-disk-limit" exceptions &&
	contexts -p exec "$id" log | jq -e "select(.truncated > 0)" >truncated &&
	test "$(jq -r .stream <truncated)" = stdout
'
test_expect_success 'a little too much is cut off, counted, and said once' '
	id=$(guest_submit -N1 "head -c 3000000 /dev/zero | tr \"\\0\" x") &&
	wait_event -q "$id" clean &&
	flux job status "$id" &&
	contexts -p exec "$id" log >logs &&
	test "$(jq -r "select(.truncated) | .truncated" <logs)" = 1951424 &&
	test "$(jq -j "select(.truncated | not) | .data" <logs | wc -c)" = 1048576
'
test_expect_success 'a terabyte of nothing is not waited for' '
	id=$(guest_submit -N1 "
		python3 -c \"import os; os.ftruncate(1, 1 << 40)\"; echo end") &&
	wait_event -q "$id" clean &&
	flux job status "$id" &&
	test "$(contexts -p exec "$id" log | jq -j "select(.truncated | not) | .data" | wc -c)" -lt 65536 &&
	test -z "$(drained)"
'
test_expect_success 'a descriptor that was handed on takes nothing' '
	gate handed.on &&
	id=$(dummy_submit -N1 --requires=rank:1 "
		systemd-run --user -qP -u handed-on cat $PWD/handed.on &
		echo started; until systemctl --user -q is-active handed-on; do :; done") &&
	wait_event -q "$id" clean &&
	exec 9>handed.on &&
	head -c 50000 /dev/zero >&9 &&
	victims_jobs_run 1 &&
	await eval "ls $(state_directory 1)/*.stray" &&
	await eval "test 0 = \$(cat $(state_directory 1)/*.stray | wc -c)" &&
	exec 9>&- &&
	await eval "! systemctl --user -q is-active handed-on" &&
	id=$(flux submit -N1 --requires=rank:1 true) &&
	wait_event -q "$id" clean &&
	await eval "! ls $(state_directory 1)/*.stray"
'
test_expect_success 'a flood of requests leaves a small record, and its job is none the worse' '
	gate flooded.2 flooded.3 over.2 over.3 && chmod 666 flooded.* over.* &&
	id=$(guest_submit -N2 --requires=rank:2-3 "
		[ \$rank = 3 ] || flux python $PWD/storm.py \$id \$rank 2 3
		echo >flooded.\$rank
		cat over.\$rank") &&
	wait_gate flooded.2 flooded.3 &&
	test "$(record_size 2 "$id")" -lt 150000 &&
	flux exec -r 2 flux module reload job-exec &&
	test "$(record_size 2 "$id")" -lt 300000 &&
	victims_jobs_run &&
	open_gate over.2 over.3 &&
	wait_event -q "$id" clean &&
	test -z "$(drained)"
'
test_expect_success 'another user may not ask for it' '
	id=$(flux submit -N2 sleep inf) &&
	wait_event -q "$id" start &&
	decimal=$(flux job id --to=dec "$id") &&
	for topic in critical-ranks shell-barrier shell-runs checkpoint; do
		as_guest test_must_fail rpc job-exec.$topic \
			"{\"id\": $decimal, \"rank\": 0, \"ranks\": \"0\"}" 2>err &&
		grep EPERM err || return 1
	done &&
	flux cancel "$id" &&
	wait_event -q "$id" clean
'
test_expect_success 'a guest is told of his own jobs, and nothing of others' '
	other=$(flux submit -N4 -n4 sleep inf) &&
	wait_event -q "$other" start &&
	gate looked.0 looked.1 && chmod 666 looked.* &&
	id=$(guest_submit -N2 -n2 --requires=rank:0-1 "cat looked.\$rank") &&
	wait_event -q "$id" start &&
	for rank in 0 1 2; do
		as_guest rpc $rank job-exec.stats-get "{}" >"seen.$rank" || return 1
	done &&
	jq -c keys seen.0 | grep -x "\[.coordinated.,.jobs.,.launcher.,.release.,.scripts.,.shells.\]" &&
	jq -s -e "map(.coordinated | length) == [1, 0, 0]" seen.[012] &&
	jq -s -e "map(.shells | length) == [1, 1, 0]" seen.[012] &&
	test_must_fail grep "$(flux job id --to=f58plain "$other" | cut -c2-)" seen.[012]
'
test_expect_success COMMAND 'status, units, logs and why tell him the same' '
	as_guest flux job-exec-rs status >told && cat told &&
	test "$(wc -l <told)" = 2 &&
	grep "^1 job:" told && grep "led by rank 0: runs, 2 of 2 shells" told &&
	as_guest flux job-exec-rs units --all -no "{rank} {stage}" >told &&
	test "$(sort told | xargs)" = "0 shell 1 shell" &&
	as_guest flux job-exec-rs logs "$id" >told &&
	grep " job  *submit" told && grep "rank 1  *module  *shell " told &&
	as_guest flux job-exec-rs why "$id" >told && cat told &&
	grep "led by .* (rank 0): runs, 2 of 2 shells" told &&
	as_guest flux job-exec-rs why "$other" >told && cat told &&
	grep "has resources, for " told && test_must_fail grep "led by" told &&
	grep "unknown: more: the service tells users of their own jobs" told &&
	test_must_fail as_guest flux job-exec-rs logs "$other" &&
	test_must_fail as_guest flux job-exec-rs status "$other"
'
test_expect_success 'and his job goes on' '
	flux cancel "$other" &&
	wait_event -q "$other" clean &&
	open_gate looked.0 looked.1 &&
	wait_event -q "$id" clean
'
# usage: unwanted SCRIPT. Starts a guest's shell on rank 1 that the job manager does not know.
unwanted() {
	printf '#!/bin/bash\n%s\n' "$1" >unwanted.sh && chmod 755 unwanted.sh &&
		flux python shells.py 1 77777 0123abcd $guest "$PWD/imp.py" exec "$PWD/unwanted.sh" 77777
}
no_unwanted() {
	! all_units | grep "imp-shell-1-"
}
test_expect_success 'a guest that nobody wants and that does not want to end is killed' '
	gate running && chmod 666 running &&
	unwanted "trap \"\" TERM; echo >$PWD/running; exec sleep inf" &&
	wait_gate running &&
	await no_unwanted &&
	flux exec -r 1 flux dmesg | grep "stopping imp-shell-1-.*does not have this job running" &&
	test -z "$(drained)"
'
# usage: kernel_kills true|false. Whether the kernel kills what is left.
kernel_kills() {
	flux config get | jq ".exec.\"cgroup-kill\" = $1" | flux config load
}
# The IMP of this shell does not kill, and nor does the kernel, as if its processes hung.
test_expect_success 'what cannot be killed is drained, and said' '
	kernel_kills false &&
	sed "s/signal.signal(signal.SIGUSR1, kill_all)/signal.signal(signal.SIGUSR1, signal.SIG_IGN)/" \
		imp.py >hung.py && chmod 755 hung.py &&
	touch hung.pid && chmod 666 hung.pid &&
	printf "#!/bin/bash\ntrap \"\" TERM USR1; echo \$\$ >$PWD/hung.pid; exec sleep inf\n" >hung.sh &&
	chmod 755 hung.sh &&
	flux python shells.py 1 88888 0123abcd $guest "$PWD/hung.py" exec "$PWD/hung.sh" 88888 &&
	await eval "drained | grep \"1 unkillable user processes for job .*: pid \"" &&
	flux exec -r 1 flux dmesg | grep "cannot end imp-shell-1-"
'
# A job that has its id does not wait for it, either.
test_expect_success 'a job with the id of such a one hears that it cannot start' '
	flux python shells.py 1 88888 other-digest $(id -u) /bin/sleep inf >reports &&
	cat reports && grep "cannot be ended" reports &&
	kill -KILL "$(cat hung.pid)" &&
	await no_unwanted &&
	kernel_kills true &&
	flux resource undrain 1
'
test_expect_success 'in a storm of all of it the victims jobs start, end and release' '
	ids= &&
	for n in 1 2 3 4 5 6 7 8; do
		id=$(guest_submit -N2 -n2 "
			trap \"\" TERM
			exec flux python $PWD/storm.py \$id \$rank 2 600") || return 1
		ids="$ids $id"
	done &&
	ids="$ids $(guest_submit -n1 "while :; do cat /dev/zero; done")" &&
	ids="$ids $(guest_submit -n1 "python3 -c \"import os; os.ftruncate(2, 1 << 40)\"; sleep inf")" &&
	for id in $ids; do
		wait_event -q "$id" start || return 1
	done &&
	victims_jobs_run 20 &&
	for levels in 123 500; do
		id=$(deep_job $levels) && wait_event -q "$id" clean && flux job status "$id" || return 1
	done &&
	for id in $ids; do
		# One of them has been ended already.
		flux cancel "$id" || true
	done &&
	for id in $ids; do
		wait_event -q "$id" clean || return 1
	done &&
	victims_jobs_run
'
test_expect_success 'no rank was drained, no unit is left' '
	assert_no_units &&
	test -z "$(drained)"
'
test_expect_success 'no record and no output is left' '
	no_files() {
		local rank
		for rank in 0 1 2 3; do
			test -z "$(ls "$(state_directory $rank)")" || return 1
		done
	} &&
	await no_files
'

test_done
