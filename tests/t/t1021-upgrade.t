#!/bin/bash
test_description='a new release is loaded under running jobs'
instance_size=4
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

if ! test_have_prereq UNITS; then
	skip_all='needs our module and a user systemd'
	test_done
fi
# The same code with the next version of the protocol between ranks.
next=$(dirname "$JOB_EXEC_RS_MODULE")/next/libjob_exec_rs.so
if ! [ -r "$next" ]; then
	skip_all='needs the next release, which tests/run builds'
	test_done
fi
# shellcheck source=gated.sh
. "$here/gated.sh"

# usage: put FILE. What is loaded from now on. Loaded modules keep the file that they have.
put() {
	cp "$1" "$TMPDIR/modules/new" &&
	mv "$TMPDIR/modules/new" "$TMPDIR/modules/job-exec.so"
}
# usage: refused RANK. Succeeds if the rank has met another release.
refused() {
	flux exec -r "$1" flux dmesg >log &&
	grep -q "another job-exec-rs speaks protocol" log
}

test_expect_success 'start a job on four ranks and one on rank 1' '
	wide=$(submit_gated wide 4 -N4) &&
	narrow=$(submit_gated narrow 1 --requires=rank:1) &&
	identities "$wide" >wide.units &&
	identities "$narrow" >narrow.units
'
test_expect_success 'the next release is loaded on one rank after the other' '
	put "$next" &&
	for rank in 2 0; do
		flux exec -r $rank flux module reload job-exec || return 1
	done &&
	await refused 0 &&
	for rank in 1 3; do
		flux exec -r $rank flux module reload job-exec || return 1
	done
'
test_expect_success 'both jobs are led again, and their shells are the same' '
	await is_led "$wide" &&
	await is_led "$narrow" &&
	identities "$wide" >wide.now &&
	test_cmp wide.units wide.now &&
	identities "$narrow" >narrow.now &&
	test_cmp narrow.units narrow.now
'
test_expect_success 'jobs can be started' '
	flux run -N4 -n4 true
'
test_expect_success 'both end as if nothing had been' '
	open_gate wide.0 wide.1 wide.2 wide.3 narrow.0 &&
	ended_well "$narrow" 0 1 &&
	ended_well "$wide" 768 4
'
test_expect_success 'a job that is submitted meanwhile waits for the ranks that are behind' '
	put "$JOB_EXEC_RS_MODULE" &&
	flux exec -r 0 flux module reload job-exec &&
	id=$(flux submit -N4 -n4 true) &&
	flux job wait-event -t "$patience" "$id" alloc &&
	flux exec -r 1-3 flux module reload job-exec &&
	wait_event "$id" clean &&
	test "$(contexts "$id" finish)" = "{\"status\":0}"
'

test_done
