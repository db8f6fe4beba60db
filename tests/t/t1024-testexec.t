#!/bin/bash
test_description='jobs that are mocked (exec.test)'
instance_size=4
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

cp "$here/sign-none.py" .
guest=$(id -u nobody)

# usage: mock KEY=VALUE... [-- OPTION...]
mock() {
	local settings=()
	while [ $# -gt 0 ] && [ "$1" != -- ]; do
		settings+=("--setattr=system.exec.test.$1")
		shift
	done
	flux submit "${settings[@]}" "${@:2}" false
}
guest_mock() {
	flux submit --dry-run --setattr=system.exec.test.run_duration=0.1s true |
		flux python sign-none.py "$guest" >signed &&
		FLUX_HANDLE_USERID=$guest flux job submit --flags=signed signed
}
# `flux job wait-event -p exec` shows nothing before the job has started.
is_waiting() {
	flux kvs get -N "$(flux job namespace "$1")" exec.eventlog | grep starting
}
note() {
	contexts "$1" exception | jq -r .note
}

test_expect_success 'a mocked job has all events of a real one, and ends as it is told to' '
	id=$(mock run_duration=0.1s wait_status=256 -- -N4) &&
	wait_event "$id" clean &&
	test "$(contexts "$id" finish)" = "{\"status\":256}" &&
	test "$(contexts "$id" release)" = "{\"final\":true,\"ranks\":\"all\"}" &&
	job_events "$id" | grep -A99 -x alloc | xargs >events &&
	test "$(cat events)" = "alloc start finish release free clean" &&
	exec_events "$id" | xargs >exec-events &&
	test "$(cat exec-events)" = "init starting recoverable complete done"
'
test_expect_success UNITS 'and no unit' '
	id=$(mock run_duration=60s -- -N4) &&
	wait_event "$id" start &&
	test -z "$(units_of "$id")" &&
	flux cancel "$id" &&
	wait_event "$id" clean &&
	test "$(contexts "$id" finish)" = "{\"status\":15}"
'
test_expect_success 'its time limit ends it' '
	id=$(mock run_duration=1h -- -t 0.5s) &&
	wait_event "$id" clean &&
	test "$(contexts "$id" exception | jq -r .type)" = timeout &&
	test "$(contexts "$id" finish)" = "{\"status\":14}"
'
test_expect_success 'its user starts and ends it, from any rank' '
	id=$(mock override=1 -- -N2) &&
	await is_waiting "$id" &&
	test_must_fail flux exec -r 3 flux job-exec-override finish "$id" 0 &&
	flux exec -r 3 flux job-exec-override start "$id" &&
	wait_event "$id" start &&
	test_must_fail flux job-exec-override start "$id" &&
	flux exec -r 2 flux job-exec-override finish "$id" 9 &&
	wait_event "$id" clean &&
	test "$(contexts "$id" finish)" = "{\"status\":9}"
'
test_expect_success 'nobody else does' '
	id=$(mock override=1) &&
	await is_waiting "$id" &&
	for rank in 0 2; do
		test_must_fail flux exec -r $rank env FLUX_HANDLE_USERID="$guest" FLUX_HANDLE_ROLEMASK=0x2 \
			flux job-exec-override start "$id" 2>err || return 1
		grep "another user" err || return 1
	done &&
	flux cancel "$id" &&
	wait_event "$id" clean &&
	test_must_fail grep -x finish <(job_events "$id")
'
test_expect_success 'a wrong value fails the job, and is named' '
	id=$(mock run_duration=soon) &&
	wait_event "$id" clean &&
	note "$id" | grep "system.exec.test.run_duration: expected a duration, got \"soon\""
'
test_expect_success OURS 'it runs on while modules are loaded again, and ends when it would have' '
	waits=$(mock override=1) &&
	runs=$(mock run_duration=1s wait_status=512) &&
	over=$(mock run_duration=1h reattach_finish=1) &&
	for id in $runs $over; do wait_event "$id" start || return 1; done &&
	await is_waiting "$waits" &&
	flux exec flux module reload job-exec &&
	for id in $runs $over; do wait_event "$id" clean || return 1; done &&
	test "$(contexts "$runs" finish)" = "{\"status\":512}" &&
	test "$(contexts "$over" finish)" = "{\"status\":0}" &&
	await flux job-exec-override start "$waits" &&
	wait_event "$waits" start &&
	flux job-exec-override finish "$waits" 0 &&
	wait_event "$waits" clean &&
	flux job status "$waits"
'
test_expect_success 'a guest may not mock a job' '
	printf "[access]\nallow-guest-user = true\n" >"$FLUX_TEST_CONFIG/guests.toml" &&
	flux config reload &&
	id=$(guest_mock) &&
	wait_event "$id" clean &&
	note "$id" | grep "guests may not use test exec"
'
test_expect_success 'unless the configuration says so' '
	printf "[exec.testexec]\nallow-guests = true\n" >>"$FLUX_TEST_CONFIG/guests.toml" &&
	flux config reload &&
	id=$(guest_mock) &&
	wait_event "$id" clean &&
	flux job status "$id"
'

test_done
