#!/bin/bash
test_description='the method of one job (exec.method)'
instance_size=4
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

cp "$here/sign-none.py" .
guest=$(id -u nobody)

# usage: with_method METHOD [OPTION...] COMMAND...
with_method() {
	flux submit --setattr=system.exec.method="$1" "${@:2}"
}
note() {
	contexts "$1" exception | jq -r .note
}

test_expect_success UNITS 'the owner has children of the brokers for one job, and units for others' '
	one=$(with_method fork -N4 -n4 sleep inf) &&
	other=$(with_method sdexec -N4 -n4 sleep inf) &&
	wait_event "$one" start &&
	wait_event "$other" start &&
	test -z "$(units_of "$one")" &&
	test "$(units_of "$other" | wc -l)" -eq 4 &&
	flux cancel "$one" "$other" &&
	wait_event "$one" clean &&
	wait_event "$other" clean
'
test_expect_success 'such a job has its output, its status and all its ranks' '
	id=$(with_method rexec -N4 -n4 bash -c "echo \$FLUX_TASK_RANK; exit 3") &&
	wait_event "$id" clean &&
	test_expect_code 3 flux job attach "$id" >out 2>err &&
	test "$(sort out | xargs)" = "0 1 2 3" &&
	test "$(contexts "$id" finish)" = "{\"status\":768}" &&
	job_events "$id" | grep -A99 -x alloc | xargs >events &&
	test "$(cat events)" = "alloc start finish release free clean"
'
# rexec kills the shell only, and its task runs on (rfc/0006, 6.5) until the gate closes.
gate leftover
test_expect_success UNITS 'it ends with the module of one of its ranks, and a job in units does not' '
	exec 8<>leftover &&
	test_when_finished "exec 8>&-" &&
	id=$(with_method fork -N4 -n4 cat "$PWD/leftover") &&
	other=$(with_method systemd -N4 -n4 sleep inf) &&
	wait_event "$id" start &&
	wait_event "$other" start &&
	flux exec -r 3 flux module reload job-exec &&
	wait_event "$id" clean &&
	note "$id" >note &&
	test_when_finished "cat note" &&
	grep "rank 3" note &&
	test "$(flux jobs -no "{state}" "$other")" = RUN &&
	flux cancel "$other" &&
	wait_event "$other" clean &&
	test -z "$(flux resource drain -no "{ranks}")"
'
test_expect_success 'a guest does not choose' '
	flux submit --dry-run --setattr=system.exec.method=fork true |
		flux python sign-none.py "$guest" >signed &&
	id=$(FLUX_HANDLE_USERID=$guest flux job submit --flags=signed signed) &&
	wait_event "$id" clean &&
	note "$id" >note &&
	grep "guests may not choose system.exec.method (it asks for fork)" note
'
test_expect_success 'a method that there is not fails the job, and is named' '
	id=$(with_method slurm true) &&
	wait_event "$id" clean &&
	note "$id" >note &&
	grep "system.exec.method: expected auto, systemd or fork, got \"slurm\"" note
'
test_expect_success 'where there are only children, a job that wants a unit fails and says why' '
	await no_records 0 &&
	flux module reload job-exec method=fork &&
	id=$(with_method systemd --requires=rank:0 true) &&
	wait_event "$id" clean &&
	note "$id" >note &&
	grep "exec method systemd is not available: exec.method is fork" note &&
	flux run --requires=rank:0 true
'
test_expect_success 'upstreams newer method is taken, and shown by its name' '
	flux module reload job-exec method=bgexec &&
	flux module stats job-exec | jq -e ".method == \"bgexec\"" &&
	id=$(flux submit --setattr=system.exec.bgexec.foo=bar true) &&
	wait_event "$id" clean &&
	note "$id" >note &&
	grep "system.exec.bgexec: unknown key \"foo\"" note &&
	flux module reload job-exec
'

test_done
