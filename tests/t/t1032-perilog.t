#!/bin/bash
test_description='prologs and epilogs, rank by rank'
instance_size=4
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

if ! test_have_prereq UNITS; then
	skip_all='needs our module and a user systemd'
	test_done
fi

# What each script does on each rank, a test says with files: fail-prolog-2, gate-epilog-1, ...
here_now=$PWD
cat >script <<-EOF
	#!/bin/bash
	cd "$here_now" || exit
	rank=\$(flux getattr rank)
	echo "\$1 \$rank" >>log
	echo "\$FLUX_JOB_ID \$FLUX_JOB_RANKS \$FLUX_JOB_USERID" >env-\$1-\$rank
	echo "said by \$1 \$rank"
	[ -e deaf-\$1-\$rank ] && trap '' TERM
	[ -e gate-\$1-\$rank ] && { echo \$\$ >here-\$1-\$rank; cat gate-\$1-\$rank; }
	[ -e fail-\$1-\$rank ] && exit 3
	exit 0
EOF
chmod +x script

# usage: scripts [LINE...]. Lines of exec.perilog; then of the prolog's table and the epilog's.
scripts() {
	rm -f log here-* fail-* gate-* deaf-*
	: >log
	configure '[exec.perilog]' 'enable = true' "$@" \
		'[job-manager.prolog]' "command = ['$PWD/script', 'prolog']" 'per-rank = true' \
		"${prolog[@]}" \
		'[job-manager.epilog]' "command = ['$PWD/script', 'epilog']" 'per-rank = true' \
		"${epilog[@]}"
}
# usage: came NAME-RANK. The script waits at its gate.
came() {
	await test -s "here-$1"
}
count() {
	grep -c "^$1" log
}
drained() {
	flux resource drain -no '{ranks} {reason}'
}
undrain() {
	flux resource undrain "$(flux resource drain -no '{ranks}' | paste -sd,)"
}
script_units() {
	all_units | grep -E '(prolog|epilog)-'
}
no_script_units() {
	! script_units
}
# usage: epilogs_over COUNT. The epilog of a stuck prolog comes when that has ended: in between there is
# no unit.
epilogs_over() {
	test "$(count epilog)" = "$1" && no_script_units
}
prolog=() epilog=()
program=$(dirname "$JOB_EXEC_RS_MODULE")/job-exec-rs

test_expect_success 'scripts are enabled when the module is loaded again' '
	scripts &&
	flux run true &&
	test "$(count prolog)" = 0 &&
	flux exec -r all flux module reload job-exec &&
	flux run true &&
	test "$(count prolog)" = 1
'
test_expect_success 'not while perilog.so runs the same scripts' '
	flux module remove job-exec &&
	flux jobtap load perilog.so &&
	test_must_fail flux module load job-exec &&
	flux dmesg | grep "flux jobtap remove perilog.so" &&
	flux jobtap remove perilog.so &&
	flux module load job-exec &&
	test_must_fail configure "[exec.perilog]" "enable = true" "[job-manager]" \
		"plugins = [ { load = \"perilog.so\" } ]" 2>err &&
	grep "job-manager.plugins loads perilog.so" err
'
test_expect_success 'prologs run on all ranks before any shell, and epilogs behind' '
	scripts &&
	id=$(flux submit -N4 sh -c "echo task >>$PWD/log") &&
	wait_event "$id" clean &&
	test "$(cut -d" " -f1 log | uniq -c | xargs)" = "4 prolog 4 task 4 epilog" &&
	test "$(grep prolog log | sort | cut -d" " -f2 | xargs)" = "0 1 2 3" &&
	test "$(grep epilog log | sort | cut -d" " -f2 | xargs)" = "0 1 2 3"
'
test_expect_success 'a script finds its job in the environment' '
	for script in prolog epilog; do
		read -r job ranks user <env-$script-3 &&
		test "$(flux job id "$job") $ranks $user" = "$(flux job id "$id") 0-3 $(id -u)" ||
			return 1
	done
'
test_expect_success 'what scripts print is in the log of the broker, and not in the job' '
	flux dmesg | grep "epilog: .*(rank 0): stdout: said by epilog 0" &&
	! flux job attach "$id" 2>&1 | grep said &&
	! flux job eventlog -p exec "$id" | grep said
'
test_expect_success 'nothing is left of them' '
	await no_script_units
'
test_expect_success 'a prolog that fails drains its node, fails its job and is followed by epilogs' '
	scripts &&
	touch fail-prolog-2 &&
	id=$(flux submit -N4 true) &&
	wait_event -v -m type=prolog "$id" exception >exception &&
	grep "prolog exited with code=3 on .* (rank 2)" exception &&
	grep "severity=0" exception &&
	wait_event "$id" clean &&
	drained | grep "^2 prolog failed for job " &&
	test "$(count epilog)" = 4 &&
	test "$(count task)" = 0 &&
	! flux job eventlog "$id" | grep " start\$" &&
	undrain
'
test_expect_success 'a cancel ends prologs, and drains nobody' '
	scripts &&
	mkfifo gate-prolog-1 &&
	id=$(flux submit -N4 true) &&
	came prolog-1 &&
	flux cancel "$id" &&
	wait_event "$id" clean &&
	test "$(count epilog)" = 4 &&
	test -z "$(drained)"
'
test_expect_success 'a prolog that takes too long is ended, and its node is drained' '
	prolog=("timeout = \"0.5s\"") &&
	scripts &&
	prolog=() &&
	mkfifo gate-prolog-3 &&
	id=$(flux submit -N4 true) &&
	wait_event -v -m type=prolog "$id" exception | grep "prolog timed out on .* (rank 3)" &&
	wait_event "$id" clean &&
	drained | grep "^3 prolog timed out for job " &&
	undrain
'
test_expect_success 'an epilog that hangs drains its node alone, and the others are free' '
	epilog=("timeout = \"3s\"" "kill-timeout = 0.2") && # those of the others end before
	scripts &&
	epilog=() &&
	mkfifo gate-epilog-1 && touch deaf-epilog-1 &&
	id=$(flux submit -N4 true) &&
	wait_event "$id" clean &&
	drained | grep "^1 epilog timed out for job " &&
	scripts &&
	flux run -N3 true &&
	script_units | grep "epilog-1-$(flux job id --to=f58plain "$id")"
'
test_expect_success 'it goes on, and is forgotten when it has ended' '
	flux resource undrain 1 &&
	systemctl --user kill -s KILL "$(script_units)" &&
	await no_script_units
'
test_expect_success 'an epilog that fails drains its node, and the result of the job stays' '
	scripts &&
	touch fail-epilog-0 &&
	id=$(flux submit -N2 true) &&
	wait_event -v -m severity=2 "$id" exception | grep "epilog exited with code=3 on .* (rank 0)" &&
	wait_event "$id" clean &&
	flux job status "$id" &&
	drained | grep "^0 epilog failed for job " &&
	undrain
'
test_expect_success 'scripts go on while modules are reloaded, and none runs twice' '
	scripts &&
	mkfifo gate-prolog-1 gate-epilog-1 &&
	id=$(flux submit -N4 true) &&
	came prolog-1 &&
	flux exec flux module reload job-exec &&
	open_gate gate-prolog-1 &&
	came epilog-1 &&
	flux exec flux module reload job-exec &&
	open_gate gate-epilog-1 &&
	wait_event "$id" clean &&
	flux job status "$id" &&
	test "$(count prolog)" = 4 &&
	test "$(count epilog)" = 4 &&
	await no_script_units
'
test_expect_success 'the job is held in CLEANUP while an epilog runs' '
	scripts &&
	mkfifo gate-epilog-0 &&
	id=$(flux submit true) &&
	came epilog-0 &&
	wait_event "$id" finish &&
	wait_event "$id" epilog-start &&
	test "$(flux jobs -no "{state}" "$id")" = CLEANUP &&
	open_gate gate-epilog-0 &&
	wait_event "$id" epilog-finish &&
	wait_event "$id" clean
'
test_expect_success 'epilogs can wait for the last shell' '
	scripts "epilog-start = \"job\"" &&
	id=$(flux submit -N2 -n2 sh -c "[ \$FLUX_TASK_RANK = 0 ] || exit 0; echo task >>$PWD/log") &&
	wait_event "$id" clean &&
	test "$(cut -d" " -f1 log | uniq -c | xargs)" = "2 prolog 1 task 2 epilog"
'
test_expect_success 'what hangs is listed, and one rank of it is released' '
	scripts &&
	mkfifo gate-epilog-1 gate-epilog-2 &&
	id=$(flux submit -N4 true) &&
	came epilog-1 && came epilog-2 &&
	await_list() { "$program" perilog list >list && test "$(wc -l <list)" = 3; } &&
	await await_list &&
	grep "^$id  *1 epilog  *running" list &&
	grep "^$id  *2 epilog  *running  *[0-9]*s  *- epilog-2-" list &&
	"$program" perilog list -no "{rank} {time_left}" "$id" >list &&
	test "$(sort list | xargs)" = "1 - 2 -" &&
	test_must_fail "$program" perilog release "$id" --ranks 0 2>err &&
	grep "waits for no prolog or epilog there" err &&
	"$program" perilog release "$id" --ranks 1 &&
	drained | grep "^1 epilog released for job " &&
	test "$(flux jobs -no "{state}" "$id")" = CLEANUP
'
test_expect_success 'the others are not drained, or killed, unless that is said' '
	"$program" perilog release "$id" --no-drain --kill &&
	wait_event "$id" clean &&
	drained | grep "^1 epilog released for job " &&
	test "$(drained | wc -l)" = 1 &&
	killed() { ! kill -0 "$(cat here-epilog-2)"; } &&
	await killed &&
	kill -0 "$(cat here-epilog-1)" &&
	open_gate gate-epilog-1 &&
	await no_script_units &&
	undrain
'
test_expect_success 'a job whose prolog is not waited for fails' '
	scripts &&
	mkfifo gate-prolog-0 &&
	id=$(flux submit true) &&
	came prolog-0 &&
	"$program" perilog release "$id" --kill &&
	wait_event "$id" clean &&
	drained | grep "^0 prolog released for job " &&
	test "$(count epilog)" = 1 &&
	test_must_fail flux job status "$id" &&
	undrain
'
test_expect_success 'one that does not want to end is listed, and released' '
	prolog=("kill-timeout = 1e6") && scripts && prolog=() &&
	touch deaf-prolog-1 && mkfifo gate-prolog-1 &&
	id=$(flux submit -N2 true) &&
	came prolog-1 &&
	flux cancel "$id" &&
	wait_event "$id" exception &&
	"$program" perilog list >list &&
	grep "^$id  *1 prolog " list &&
	"$program" perilog release "$id" --no-drain &&
	wait_event "$id" clean &&
	open_gate gate-prolog-1 &&
	await epilogs_over 2 &&
	test -z "$(drained)"
'
test_expect_success 'a rank that was given back is not drained when its stuck prolog ends' '
	prolog=("timeout = \"0.2s\"" "kill-timeout = 0.2") && scripts && prolog=() &&
	touch deaf-prolog-1 && mkfifo gate-prolog-1 &&
	id=$(flux submit --requires=rank:1 true) &&
	wait_event "$id" clean &&
	drained | grep "^1 prolog timed out for job " &&
	undrain &&
	open_gate gate-prolog-1 &&
	await epilogs_over 1 &&
	test -z "$(drained)"
'
test_expect_success 'epilog-finish that is posted by hand confuses nobody' '
	scripts &&
	mkfifo gate-epilog-0 &&
	id=$(flux submit true) &&
	came epilog-0 &&
	wait_event "$id" epilog-start &&
	flux post-job-event "$id" epilog-finish name=by-hand &&
	open_gate gate-epilog-0 &&
	wait_event "$id" clean &&
	scripts &&
	flux run true &&
	! flux dmesg | grep "err.* cannot post an event"
'
test_expect_success 'an epilog of a job that nobody leads drains its rank if it fails' '
	scripts &&
	sed -i "s/^\[exec\]$/&\npeer-timeout = \"1s\"/" "$FLUX_TEST_CONFIG/exec.toml" &&
	flux config reload &&
	touch fail-epilog-1 &&
	flux python "$here/shells.py" --epilog 1 77777 0123abcd "$(id -u)" /bin/sleep inf &&
	await eval "drained | grep \"^1 epilog failed for job .*Q7z\"" &&
	await no_script_units &&
	test "$(drained | wc -l)" = 1 &&
	undrain
'
# Its shell had ended well, and the others do not miss it.
test_expect_success 'a node that is given up in its epilog does not fail the job' '
	scripts &&
	sed -i "s/^\[exec\]$/&\npeer-timeout = \"1s\"/" "$FLUX_TEST_CONFIG/exec.toml" &&
	flux config reload &&
	gate gate-epilog-2 run-0 run-1 run-3 &&
	id=$(dummy_submit -N4 "[ \$rank = 2 ] || cat $PWD/run-\$rank") &&
	came epilog-2 &&
	flux exec -r 2 flux module remove job-exec &&
	await eval "drained | grep \"^2 lost contact: processes of job .* may still run\"" &&
	open_gate run-0 run-1 run-3 &&
	wait_event "$id" clean &&
	test "$(contexts "$id" exception)" = "" &&
	test "$(contexts "$id" finish)" = "{\"status\":0}" &&
	flux exec -r 2 flux module load job-exec &&
	open_gate gate-epilog-2 &&
	await no_script_units &&
	undrain
'
test_expect_success 'a drain is asked for until the resource module has answered' '
	scripts &&
	sed -i "s/^\[exec\]$/&\npeer-timeout = \"1s\"/" "$FLUX_TEST_CONFIG/exec.toml" &&
	flux config reload &&
	touch fail-epilog-1 &&
	flux module remove sched-simple &&
	flux module remove resource &&
	flux python "$here/shells.py" --epilog 1 77778 0123abcd "$(id -u)" /bin/sleep inf &&
	await eval "flux exec -r 1 flux dmesg | grep \"drain 1 (epilog failed .*: not answered, trying again\"" &&
	flux module load resource &&
	flux module load sched-simple &&
	await eval "drained | grep \"^1 epilog failed for job \"" &&
	await no_script_units &&
	undrain &&
	flux run true
'
test_expect_success 'guests may neither list nor release' '
	(
		export FLUX_HANDLE_ROLEMASK=0x2 FLUX_HANDLE_USERID=9999 &&
		test_must_fail rpc 0 job-exec.perilog-release "{\"id\": 1}" 2>err &&
		rpc 0 job-exec.stats-get "{}" >stats
	) &&
	grep EPERM err && jq -e ".scripts == {}" stats
'
test_expect_success '100 jobs, and none is stuck' '
	scripts &&
	flux submit --cc=1-100 true >ids &&
	for id in $(cat ids); do
		wait_event "$id" clean && flux job status "$id" || return 1
	done &&
	test "$(count prolog)" = 100 &&
	test "$(count epilog)" = 100 &&
	assert_no_units
'
test_expect_success 'a bad configuration is refused, and names its key' '
	test_must_fail configure "[exec.perilog]" "enable = true" "[job-manager.prolog]" 2>err &&
	grep "no job-manager.prolog.command, and no exec.imp" err &&
	configure
'

test_done
