#!/bin/bash
test_description='another execution service comes and goes'
instance_size=2
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

# What the other service says next.
said() {
	timeout "$patience" head -n 1 <&7
}
mkfifo said
exec 7<>said

test_expect_success OURS 'beside a service that executes jobs the module does not load, and says why' '
	flux module remove job-exec &&
	{ flux python "$here/other-exec.py" said & } &&
	other=$! &&
	test "$(said)" = hello &&
	id=$(flux submit true) &&
	test "$(said)" = start &&
	wait_event "$id" start &&
	flux dmesg -C &&
	test_must_fail flux module load job-exec &&
	flux dmesg >log &&
	grep "another service than .job-exec. executes jobs that have not ended" log
'
test_expect_success OURS 'their jobs are not touched' '
	test "$(flux jobs -no "{state}" "$id")" = RUN &&
	kill -USR1 "$other" &&
	test "$(said)" = finish &&
	wait_event "$id" clean &&
	test "$(contexts "$id" finish)" = "{\"status\":0}"
'
test_expect_success OURS 'when they have ended it takes over' '
	flux module load job-exec &&
	flux run -N2 -n2 true
'
test_expect_success OURS 'nobody takes over from it while jobs run' '
	id=$(flux submit -N2 -n2 sleep inf) &&
	wait_event "$id" start &&
	kill -USR2 "$other" &&
	test "$(said)" = "refused 22" &&
	flux cancel "$id" &&
	wait_event "$id" clean &&
	test "$(contexts "$id" exception | jq -r .type)" = cancel
'
test_expect_success OURS 'after a takeover from it no job is started twice, and a reload takes all back' '
	kill -USR2 "$other" &&
	test "$(said)" = hello &&
	id=$(flux submit true) &&
	test "$(said)" = start &&
	kill -USR1 "$other" &&
	test "$(said)" = finish &&
	wait_event "$id" clean &&
	test_must_fail grep . <(units_of "$id") &&
	test_must_fail stats_of "$id" &&
	flux module reload job-exec &&
	flux run -N2 -n2 true
'
test_expect_success OURS 'the end of the other service changes nothing' '
	kill -KILL "$other" &&
	test_expect_code 137 wait "$other" &&
	flux run -N2 -n2 true
'
test_expect_success UNITS 'no unit is left' '
	assert_no_units
'

test_done
