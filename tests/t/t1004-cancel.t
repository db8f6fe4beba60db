#!/bin/bash
test_description='jobs that are ended from outside: cancel, time limit, exceptions'
instance_size=4
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

# usage: running_sleep [OPTION...]. Submits a job and waits until its tasks run.
running_sleep() {
	local id
	id=$(flux submit "$@" sleep inf) &&
	wait_event -q -p exec "$id" shell.start &&
	wait_event -q "$id" start &&
	echo "$id"
}

# usage: end_soon JOBID. The shortest limit that has not passed already, however slow the machine is.
end_soon() {
	local seconds
	for seconds in 1 2 4 8 16 32; do
		flux update "$1" duration=${seconds}s && return
	done
	return 1
}

test_expect_success 'cancel ends a running job with SIGTERM' '
	id=$(running_sleep) &&
	flux cancel "$id" &&
	wait_event "$id" clean &&
	test "$(contexts "$id" finish)" = "{\"status\":36608}" &&
	test_expect_code 143 flux job status "$id" &&
	test "$(flux jobs -no "{result}" "$id")" = CANCELED
'
test_expect_success 'with one exception, and no other' '
	contexts "$id" exception >exceptions &&
	test "$(jq -c "[.type, .severity]" exceptions)" = "[\"cancel\",0]"
'
test_expect_success 'cancel ends a job on several ranks' '
	id=$(running_sleep -N4 -n4) &&
	flux cancel "$id" &&
	wait_event "$id" clean &&
	test_expect_code 143 flux job status "$id" &&
	test "$(contexts "$id" exception | wc -l)" -eq 1
'
test_expect_success 'a message of the exception is kept' '
	id=$(running_sleep) &&
	flux cancel -m "not needed any more" "$id" &&
	wait_event "$id" clean &&
	contexts "$id" exception | grep "not needed any more"
'
test_expect_success 'cancel --all ends them all' '
	flux submit --cc=1-20 -n1 sleep inf >ids &&
	for id in $(cat ids); do wait_event -q "$id" start || return 1; done &&
	flux cancel --all &&
	flux queue drain &&
	flux jobs -no "{result}" $(cat ids) | sort | uniq -c |
		awk "{print \$1, \$2}" >actual &&
	echo 20 CANCELED >expected &&
	test_cmp expected actual
'
test_expect_success 'jobs that are cancelled before they run do not run' '
	id=$(flux submit -N4 --urgency=hold touch "$PWD/ran") &&
	flux cancel "$id" &&
	wait_event "$id" clean &&
	test_must_fail ls ran
'
test_expect_success 'a job can be cancelled while its shells wait for each other' '
	gate never &&
	id=$(dummy_submit -N4 "early:
		[ \$rank = 3 ] && exec cat never
		exec flux python $here/barrier.py \$id \$rank") &&
	wait_event "$id" start &&
	flux cancel "$id" &&
	wait_event "$id" clean &&
	! flux job status "$id" &&
	contexts "$id" exception | jq -r .type >types &&
	test "$(head -n 1 types)" = cancel
'
test_expect_success 'a job that ignores SIGTERM is killed' '
	flux module reload job-exec kill-timeout=0.2s &&
	gate ready &&
	id=$(flux submit bash -c "trap : TERM; echo >ready; while :; do sleep 1; done") &&
	wait_gate ready &&
	flux cancel "$id" &&
	wait_event "$id" clean &&
	test_expect_code 137 flux job status "$id"
'
test_expect_success 'shells that ignore SIGTERM are killed' '
	gate waiting.0 waiting.1 &&
	id=$(dummy_submit -N2 --requires=rank:0-1 "trap : TERM
		echo >waiting.\$rank
		while :; do sleep 1; done") &&
	wait_gate waiting.0 waiting.1 &&
	wait_event "$id" start &&
	flux cancel "$id" &&
	wait_event "$id" clean &&
	! flux job status "$id"
'
test_expect_success 'no rank was drained for it' '
	test "$(flux resource drain -no "{ranks}")" = "" &&
	flux module reload job-exec
'
test_expect_success 'a time limit ends a job' '
	test_expect_code 142 flux run -t 1s sleep inf 2>err &&
	id=$(flux job last) &&
	contexts "$id" exception >exceptions &&
	test "$(jq -c "[.type, .severity, .note]" exceptions)" = \
		"[\"timeout\",0,\"resource allocation expired\"]" &&
	test "$(flux jobs -no "{result}" "$id")" = TIMEOUT
'
test_expect_success 'a time limit that is moved before it is reached' '
	id=$(running_sleep -t 1h) &&
	end_soon "$id" &&
	wait_event "$id" clean &&
	test "$(flux jobs -no "{result}" "$id")" = TIMEOUT
'
test_expect_success OURS 'also of a job that does not run on rank 0' '
	id=$(running_sleep -t 1h --requires=rank:3) &&
	end_soon "$id" &&
	wait_event "$id" clean &&
	test "$(flux jobs -no "{result}" "$id")" = TIMEOUT
'
test_expect_success UNITS 'if its rank does not answer, the job is told, and goes on' '
	id=$(running_sleep -t 1h --requires=rank:3) &&
	flux exec -r 3 flux module remove job-exec &&
	flux update "$id" duration=2h &&
	wait_event "$id" exception &&
	contexts "$id" exception >exceptions &&
	flux exec -r 3 flux module load job-exec &&
	test "$(jq -c "[.type, .severity]" exceptions)" = "[\"exec\",1]" &&
	test "$(flux jobs -no "{state}" "$id")" = RUN &&
	flux cancel "$id" &&
	wait_event "$id" clean
'
test_expect_success 'an exception that is not severe does not end a job' '
	id=$(running_sleep) &&
	flux job raise --severity=1 --type=note "$id" a remark &&
	wait_event "$id" exception &&
	test "$(flux jobs -no "{state}" "$id")" = RUN
'
test_expect_success 'a signal by the user reaches the tasks' '
	flux job kill --signal=USR1 "$id" &&
	wait_event "$id" clean &&
	test_expect_code 138 flux job status "$id"
'
test_expect_success 'a severe exception of any type ends a job' '
	id=$(running_sleep -N2 -n2) &&
	flux job raise --severity=0 --type=weather "$id" too hot &&
	wait_event "$id" clean &&
	! flux job status "$id" &&
	test "$(contexts "$id" release | tail -n 1 | jq .final)" = true
'
test_expect_success UNITS 'no unit is left' '
	assert_no_units
'

test_done
