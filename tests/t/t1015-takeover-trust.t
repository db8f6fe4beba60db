#!/bin/bash
test_description='what a new leader believes of a guest namespace, which is its user'\''s to write'
instance_size=2
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

if ! test_have_prereq UNITS; then
	skip_all='needs our module and a user systemd'
	test_done
fi

# usage: submit_writer COMMAND. Submits a job on rank 1 that runs COMMAND in its guest namespace,
# and then waits.
submit_writer() {
	local id
	id=$(dummy_submit -N1 --requires=rank:1 "
		export FLUX_KVS_NAMESPACE=job-\$(flux job id --to=dec \$id)
		cat go; $1; echo >written; cat stay; exit 3") &&
	wait_event -q "$id" start &&
	open_gate go &&
	wait_gate written &&
	echo "$id"
}
# usage: has_one_exception JOBID TEXT. Checks that the job has one exception, which contains TEXT
# and nothing of the link's target.
has_one_exception() {
	contexts "$1" exception >exceptions &&
	cat exceptions &&
	test "$(wc -l <exceptions)" = 1 &&
	grep -F "$2" exceptions &&
	test_must_fail grep -i secret exceptions &&
	flux exec -r all flux dmesg >log &&
	test_must_fail grep -i secret log
}
take_over() {
	flux exec -r 1 flux module reload job-exec
}
is_led_again() {
	exec_events "$1" | grep -x debug.lead
}
# usage: lose_namespace JOBID. Removes the job's guest namespace, as a kill of rank 0 does.
lose_namespace() {
	flux exec -r all flux module remove job-exec &&
	flux kvs namespace remove "job-$(flux job id --to=dec "$1")" &&
	flux exec -r 1 flux module load job-exec &&
	flux module load job-exec
}

gate go written stay

test_expect_success 'something that is not for users' '
	flux kvs put --raw hidden.eventlog="{\"timestamp\":\"SECRET\",\"name\":\"init\"}
"
'
test_expect_success 'an eventlog that is a link is not followed' '
	id=$(submit_writer "flux kvs link --target-namespace=primary hidden.eventlog exec.eventlog") &&
	take_over &&
	wait_event "$id" clean &&
	has_one_exception "$id" "exec.eventlog is a symbolic link" &&
	assert_no_units "$id"
'
test_expect_success 'a directory that is a link is not followed' '
	id=$(submit_writer "flux kvs link --target-namespace=primary hidden exec") &&
	take_over &&
	wait_event "$id" clean &&
	has_one_exception "$id" "exec is a symbolic link" &&
	assert_no_units "$id"
'
test_expect_success 'nor is one in a checkpoint' '
	id=$(submit_writer "flux kvs link --target-namespace=primary hidden.eventlog exec.eventlog") &&
	rpc 0 job-exec.checkpoint "{\"id\": $(flux job id --to=dec "$id")}" &&
	lose_namespace "$id" &&
	wait_event "$id" clean &&
	has_one_exception "$id" "exec.eventlog is a symbolic link" &&
	assert_no_units "$id"
'
test_expect_success 'a link to nowhere is refused as well' '
	id=$(submit_writer "flux kvs link --target-namespace=nowhere hidden.eventlog exec.eventlog") &&
	take_over &&
	wait_event "$id" clean &&
	has_one_exception "$id" "exec.eventlog is a symbolic link" &&
	assert_no_units "$id"
'
test_expect_success 'the status is the one that the shell ended with, whatever is posted' '
	id=$(submit_writer "flux kvs eventlog append exec.eventlog complete \"{\\\"status\\\":0}\"") &&
	contexts -p exec "$id" complete | grep "{\"status\":0}" &&
	take_over &&
	await is_led_again "$id" &&
	open_gate stay &&
	wait_event "$id" clean &&
	test "$(contexts "$id" finish)" = "{\"status\":768}" &&
	test "$(contexts "$id" exception)" = "" &&
	contexts -p exec "$id" complete | tail -n 1 | grep "{\"status\":768}" &&
	flux exec -r 1 flux dmesg | grep "exec.eventlog has exit 0, but it is exit 3"
'
# usage: led_anew JOBID RANKS TIMES. Checks that the leader's module was reloaded TIMES times, and
# leads again.
led_anew() {
	local n
	for n in $(seq "$3"); do
		flux exec -r "$2" flux module reload job-exec &&
		await eval "stats_of $1 | jq -e \".running == 1\"" || return 1
	done
}
test_expect_success 'an eventlog that was emptied makes no leader an older one' '
	gate both.0 both.1 &&
	id=$(dummy_submit -N2 -n2 "
		if [ \$rank = 0 ]; then
			cat go
			FLUX_KVS_NAMESPACE=job-\$(flux job id --to=dec \$id) flux kvs put --raw exec.eventlog=
			echo >written
		fi
		cat both.\$rank; exit 4") &&
	wait_event -q "$id" start &&
	led_anew "$id" 0 3 &&
	open_gate go &&
	wait_gate written &&
	led_anew "$id" 0 1 &&
	open_gate both.0 both.1 &&
	wait_event "$id" clean &&
	test "$(contexts "$id" finish)" = "{\"status\":1024}" &&
	test "$(contexts "$id" exception)" = "" &&
	test_must_fail flux kvs get "$(flux job id --to=kvs "$id").guest-leaders"
'
test_expect_success 'jobs run, and nothing is left' '
	flux run -N2 -n2 true &&
	assert_no_units
'

test_done
