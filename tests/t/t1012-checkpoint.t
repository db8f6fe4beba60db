#!/bin/bash
test_description='what is kept until a checkpoint of the KVS holds it'
instance_size=3
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

if ! test_have_prereq UNITS; then
	skip_all='needs our module and a user systemd'
	test_done
fi

# usage: checkpoint_of JOBID. The key that refers to the job's guest namespace.
checkpoint_of() {
	echo "$(flux job id --to=kvs "$1").guest-checkpoint"
}
# usage: is_covered JOBID TEXT. Succeeds if a checkpoint holds TEXT in the job's exec eventlog.
is_covered() {
	flux kvs get "$(checkpoint_of "$1").exec.eventlog" | grep -F "$2"
}
# usage: submit_talker. Submits a job on rank 1 that writes a line and waits at the gate "talk".
submit_talker() {
	local id
	id=$(dummy_submit -N1 --requires=rank:1 "
		echo before >&2; echo >talk.there; cat talk; echo after >&2; exit 3") &&
	wait_gate talk.there &&
	wait_event -q "$id" start &&
	await is_covered "$id" before &&
	echo "$id"
}
# usage: lose_namespace JOBID. Removes the job's guest namespace, as a kill of rank 0 does.
lose_namespace() {
	flux exec -r all flux module remove job-exec &&
	flux kvs namespace remove "job-$(flux job id --to=dec "$1")" &&
	flux exec -r 1-2 flux module load job-exec &&
	flux module load job-exec
}
# usage: ended_well JOBID. Checks that its output is there once, and that its status is right.
ended_well() {
	wait_event "$1" clean &&
	test "$(contexts "$1" finish)" = "{\"status\":768}" &&
	test "$(contexts "$1" exception)" = "" &&
	test "$(contexts -p exec "$1" log | jq -j .data)" = "$(printf "before\nafter\n")"
}

gate talk talk.there

test_expect_success 'a checkpoint refers to the guest namespace of a running job, not of an ended one' '
	id=$(submit_talker) &&
	flux kvs get --treeobj "$(checkpoint_of "$id")" | jq -e ".type == \"dirref\"" &&
	open_gate talk &&
	ended_well "$id" &&
	test_must_fail flux kvs get --treeobj "$(checkpoint_of "$id")"
'
test_expect_success 'records go when a checkpoint holds the end of their job' '
	await no_records 0 1 2
'
test_expect_success 'a guest namespace that is gone comes back from its checkpoint' '
	id=$(submit_talker) &&
	unit=$(units_of "$id") &&
	lose_namespace "$id" &&
	open_gate talk &&
	ended_well "$id" &&
	test "$(exec_events "$id" | grep -c "^init$")" = 1 &&
	assert_no_units "$id"
'
test_expect_success 'without a checkpoint it is written again from what the node has' '
	id=$(submit_talker) &&
	flux kvs unlink -R "$(checkpoint_of "$id")" &&
	lose_namespace "$id" &&
	open_gate talk &&
	ended_well "$id" &&
	exec_events "$id" | head -n 2 >events &&
	printf "%s\n" init starting >expected &&
	test_cmp expected events
'
# usage: link_of JOBID. Prints what stands where users look for the job's guest namespace.
link_of() {
	flux kvs get --treeobj "$(flux job id --to=kvs "$1").guest"
}
is_linked() {
	link_of "$1" >link && test_cmp linked link
}
# The job is found, and ended, without it: only users look there.
test_expect_success 'a link that has gone with the namespace is made again' '
	id=$(submit_talker) &&
	link_of "$id" >linked &&
	flux kvs unlink "$(flux job id --to=kvs "$id").guest" &&
	lose_namespace "$id" &&
	await is_linked "$id" &&
	open_gate talk &&
	ended_well "$id"
'
# usage: checkpoint_interval FSD. Sets the interval on all ranks.
checkpoint_interval() {
	printf "[exec]\ncheckpoint-interval = \"%s\"\n" "$1" >"$FLUX_TEST_CONFIG/interval.toml" &&
	flux config reload
}
no_reference() {
	! flux kvs get --treeobj "$(checkpoint_of "$1")"
}
# As if a checkpoint that had looked the root up before the end had come to write it only now.
test_expect_success 'a reference that comes back beside the moved data is removed' '
	id=$(submit_talker) &&
	flux kvs get --treeobj "$(checkpoint_of "$id")" >reference &&
	checkpoint_interval 10s &&
	flux module reload job-exec &&
	open_gate talk &&
	ended_well "$id" &&
	no_reference "$id" &&
	flux kvs put --treeobj "$(checkpoint_of "$id")=$(cat reference)" &&
	await no_reference "$id" &&
	checkpoint_interval 1s
'
test_expect_success 'nothing is left' '
	await no_records 0 1 2 &&
	assert_no_units
'

# A module that is unloaded makes a last checkpoint. A shell that ends meanwhile leaves its commits.
test_expect_success 'commits are taken, or offered again, until the module is gone' '
	id=$(flux submit -N1 --requires=rank:0 sleep inf) &&
	wait_event -q "$id" start &&
	: >answers &&
	{ flux python "$here/leave-commits.py" "$(flux job id --to=dec "$id")" stop >answers & } &&
	client=$! &&
	await grep -x kept answers &&
	for _ in 1 2 3; do flux module reload job-exec || return 1; done &&
	touch stop &&
	wait $client &&
	flux cancel "$id" &&
	wait_event "$id" clean &&
	cat answers &&
	grep ENOSYS answers &&
	test_must_fail grep "Unknown service method" answers
'

test_expect_success 'a job whose resources a checkpoint holds without their alloc event holds up nobody' '
	flux python "$here/half-allocated.py"
'
test_expect_success 'a reference that a checkpoint holds beside the moved data is removed after a crash' '
	flux python "$here/stray-reference.py"
'
test_expect_success 'many jobs are looked at together after a crash, and those that ended not twice' '
	flux python "$here/mend-many.py" "$top/command/src/rc1.py"
'

test_done
