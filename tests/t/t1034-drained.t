#!/bin/bash
test_description='jobs whose nodes are drained while they run'
instance_size=4
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

if ! test_have_prereq OURS; then
	skip_all='needs our module'
	test_done
fi

undrain() {
	local drained
	drained=$(flux resource drain -no '{ranks}' | paste -sd,)
	[ -z "$drained" ] || flux resource undrain "$drained"
}
# usage: told JOBID. Ranks and reasons of which the job was told.
told() {
	contexts "$1" node-degraded | jq -r '"\(.ranks) \(.reasons | join("; "))"'
}

test_expect_success 'an instance drains what its parent drains while it runs' '
	gate a-here &&
	cat >program <<-EOF &&
	echo >a-here
	flux resource eventlog --wait=drain >/dev/null
	flux resource drain -no "{ranks} {reason}" >a-seen
	EOF
	id=$(flux submit -N3 --requires=rank:1-3 flux broker bash program) &&
	wait_gate a-here &&
	flux resource drain 2 hot &&
	wait_event "$id" clean &&
	test "$(cat a-seen)" = "1 hot" &&
	told "$id" | tee said | grep -x "2 hot" &&
	contexts "$id" exception | jq -r "\"\(.severity) \(.type) \(.note)\"" >said &&
	grep -x "2 drain drained: fake2 (rank 2): hot" said
'
test_expect_success 'a job that is no instance is told if it asks for it' '
	undrain &&
	for name in asks silent; do
		[ $name = asks ] && option=--setattr=exec.tell-degraded=true || option= &&
		gate $name-here $name-go &&
		flux submit -N4 -n4 $option sh -c "[ \$FLUX_TASK_RANK != 0 ] || echo >$name-here; cat $name-go" >$name-id &&
		wait_gate $name-here || return 1
	done &&
	asks=$(cat asks-id) silent=$(cat silent-id) &&
	wait_event "$asks" start && wait_event "$silent" start &&
	flux resource drain 1,3 hot &&
	wait_event "$asks" node-degraded &&
	test "$(told "$asks")" = "1,3 hot; hot" &&
	test -z "$(told "$silent")"
'
test_expect_success 'a coordinator that is loaded again says nothing twice' '
	flux module reload job-exec &&
	flux resource drain 2 "no network" &&
	wait_event -c 2 "$asks" node-degraded &&
	told "$asks" | paste -sd, | grep -x "1,3 hot; hot,2 no network" &&
	test "$(contexts "$asks" exception | wc -l)" = 2 &&
	flux cancel "$asks" "$silent" &&
	wait_event "$asks" clean && wait_event "$silent" clean
'
test_expect_success 'a node that was drained between the modules is told of as well' '
	undrain &&
	gate b-here b-go &&
	id=$(flux submit -N2 -n2 --requires=rank:2-3 --setattr=exec.tell-degraded=true \
		sh -c "[ \$FLUX_TASK_RANK != 0 ] || echo >b-here; cat b-go") &&
	wait_gate b-here &&
	wait_event "$id" start &&
	flux module remove job-exec &&
	flux resource drain 3 hot &&
	flux module load job-exec &&
	wait_event "$id" node-degraded &&
	test "$(told "$id")" = "3 hot" &&
	flux cancel "$id" &&
	wait_event "$id" clean
'
test_expect_success 'an instance does not drain again what its user has taken back' '
	undrain &&
	gate c-here &&
	cat >program <<-EOF &&
	echo >c-here
	flux resource eventlog --wait=drain >/dev/null
	flux resource undrain 1 &&
	flux module reload job-exec &&
	echo >c-here
	flux resource eventlog --wait=drain -m reason=cold >/dev/null
	flux resource eventlog | grep -c " drain " >c-drains
	flux resource drain -no "{ranks} {reason}" >c-seen
	EOF
	id=$(flux submit -N4 flux broker bash program) &&
	wait_gate c-here &&
	flux resource drain 1 hot &&
	wait_gate c-here &&
	flux resource drain 3 cold &&
	wait_event "$id" clean &&
	test "$(cat c-drains)" = 2 &&
	test "$(cat c-seen)" = "3 cold"
'
test_done
