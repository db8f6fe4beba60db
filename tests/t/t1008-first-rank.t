#!/bin/bash
test_description='what a job on other ranks costs rank 0'
instance_size=4
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

if ! test_have_prereq OURS; then
	skip_all='needs our module'
	test_done
fi

tracers=()
# usage: heard RANK FILE. Succeeds if the file has what the rank's module hears now.
heard() {
	flux exec -r "$1" flux module stats job-exec >/dev/null && grep -q stats-get "$2"
}
# usage: trace RANK FILE. From now on the file gets a line for each message of the rank's module.
trace() {
	local uri
	uri=$(flux exec -r "$1" flux getattr local-uri) || return 1
	FLUX_URI=$uri flux module trace job-exec >"$2" &
	tracers+=($!)
	await heard "$1" "$2"
}
# usage: has FILE TOPIC...
has() {
	local file=$1
	shift
	for topic; do
		grep -q " job-exec\\.$topic " "$file" || return 1
	done
}
# usage: has_none FILE TOPIC...
has_none() {
	local file=$1
	shift
	for topic; do
		! grep " job-exec\\.$topic " "$file" || return 1
	done
}

test_expect_success 'run jobs on ranks 2 and 3' '
	for rank in 0 2 3; do
		trace $rank trace.$rank || return 1
	done &&
	flux run -N2 -n2 --requires=rank:2-3 true &&
	flux run -N2 -n2 --requires=rank:2-3 true &&
	test_must_fail flux run -N2 -n2 --requires=rank:2-3 false
'
test_expect_success 'rank 0 had them led, and heard nothing of their shells' '
	has trace.0 start lead &&
	has_none trace.0 shells order shell-barrier
'
test_expect_success 'rank 2 led them' '
	has trace.2 lead shells
'
test_expect_success 'rank 3 had shells, and led nothing' '
	has trace.3 shells &&
	has_none trace.3 lead
'
test_expect_success 'each rank counts its units' '
	for rank in 2 3; do
		flux exec -r $rank flux module stats job-exec | jq -e ".\"units-started\" == 3" || return 1
	done &&
	flux module stats job-exec | jq -e ".\"units-started\" == 0"
'
kill "${tracers[@]}"

test_done
