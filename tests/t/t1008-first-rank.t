#!/bin/bash
test_description='what a job on other ranks costs rank 0'
instance_size=4
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

if ! test_have_prereq OURS; then
	skip_all='needs our module'
	test_done
fi

# usage: counters RANK ROLE
counters() {
	flux exec -r "$1" flux module stats job-exec | jq -S ".counters.$2"
}
# usage: counted RANK ROLE. The sum of the counters.
counted() {
	counters "$1" "$2" | jq '[.[]] | add'
}

test_expect_success 'stats count the messages of each role' '
	for role in coordinator leader agent; do
		counters 0 $role | jq -e "length > 0 and all(type == \"number\")" || return 1
	done
'
test_expect_success 'run a job on ranks 2 and 3' '
	for rank in 0 2 3; do
		counters $rank leader >leader.$rank &&
		counters $rank agent >agent.$rank &&
		counted $rank leader >leader.$rank.sum &&
		counted $rank agent >agent.$rank.sum || return 1
	done &&
	counted 0 coordinator >coordinator.0.sum &&
	flux run -N2 -n2 --requires=rank:2-3 true &&
	flux run -N2 -n2 --requires=rank:2-3 true &&
	test_must_fail flux run -N2 -n2 --requires=rank:2-3 false
'
test_expect_success 'rank 0 neither led it nor heard of its shells' '
	counters 0 leader >now && test_cmp leader.0 now &&
	counters 0 agent >now && test_cmp agent.0 now
'
test_expect_success 'its coordinator had the few messages per job that it must have' '
	test "$(counted 0 coordinator)" -gt "$(cat coordinator.0.sum)"
'
test_expect_success 'rank 2 led it' '
	test "$(counted 2 leader)" -gt "$(cat leader.2.sum)"
'
test_expect_success 'rank 3 had shells, and led nothing' '
	counters 3 leader >now && test_cmp leader.3 now &&
	test "$(counted 3 agent)" -gt "$(cat agent.3.sum)"
'

test_done
