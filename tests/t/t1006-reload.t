#!/bin/bash
test_description='jobs that run on while the module is reloaded'
instance_size=4
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

if ! test_have_prereq UNITS; then
	skip_all='needs our module and a user systemd'
	test_done
fi

# shellcheck source=gated.sh
. "$here/gated.sh"

test_expect_success 'start a job on four ranks and one on rank 1' '
	wide=$(submit_gated wide 4 -N4) &&
	narrow=$(submit_gated narrow 1 --requires=rank:1) &&
	identities "$wide" >wide.units &&
	identities "$narrow" >narrow.units &&
	test "$(wc -l <wide.units)" -eq 4 &&
	test "$(wc -l <narrow.units)" -eq 1
'
same_units() {
	# shellcheck disable=SC2154 # the test before set them
	identities "$wide" >wide.now &&
	identities "$narrow" >narrow.now &&
	test_cmp wide.units wide.now &&
	test_cmp narrow.units narrow.now
}
test_expect_success 'a reload on rank 0 leaves their shells alone' '
	flux module reload job-exec &&
	await is_led "$wide" &&
	same_units
'
told() {
	flux dmesg | grep "1 shell of earlier jobs found: 1 run on, 0 had ended, 0 lost"
}
test_expect_success 'it logs what it has found' '
	await told &&
	flux module stats job-exec | jq -e ".restart == {found: 1, running: 1, ended: 0, lost: 0,
		\"never-started\": 0, unwanted: 0}"
'
test_expect_success 'on another rank too' '
	flux exec -r 1 flux module reload job-exec &&
	await is_led "$narrow" &&
	same_units
'
test_expect_success 'on all ranks at once' '
	flux exec -r all flux module reload job-exec &&
	await is_led "$wide" &&
	same_units
'
test_expect_success 'again and again' '
	for i in 1 2 3; do
		flux module reload job-exec &&
		flux exec -r 1-3 flux module reload job-exec || return 1
	done &&
	await is_led "$wide" &&
	same_units
'
test_expect_success 'jobs can be started meanwhile' '
	flux run -N4 -n4 true
'
test_expect_success 'both end as if nothing had been' '
	open_gate wide.0 wide.1 wide.2 wide.3 narrow.0 &&
	ended_well "$narrow" 0 1 &&
	ended_well "$wide" 768 4
'

test_expect_success 'a reload on the first rank of a job that is not on rank 0' '
	id=$(submit_gated first 2 -N2 --requires=rank:2-3) &&
	identities "$id" >units &&
	flux exec -r 2 flux module reload job-exec &&
	flux exec -r 2 flux module reload job-exec &&
	await is_led "$id" &&
	identities "$id" >now &&
	test_cmp units now &&
	open_gate first.0 first.1 &&
	ended_well "$id" 256 2
'
test_expect_success 'a job can be cancelled after a reload' '
	id=$(submit_gated cancelled 4 -N4) &&
	flux exec -r all flux module reload job-exec &&
	flux cancel "$id" &&
	wait_event "$id" clean &&
	test_expect_code 143 flux job status "$id" &&
	assert_no_units "$id"
'
# usage: peer_timeout FSD. Sets how long modules wait for each other, on all ranks.
peer_timeout() {
	printf "[exec]\npeer-timeout = \"%s\"\n" "$1" >"$FLUX_TEST_CONFIG/peer.toml" &&
	flux config reload
}
test_expect_success 'a cancel while the module is away is not lost' '
	id=$(submit_gated absent 2 -N2 --requires=rank:2-3) &&
	peer_timeout 1s &&
	flux module remove job-exec &&
	flux exec -r 2 flux module remove job-exec &&
	flux cancel "$id" &&
	flux exec -r 2 flux module load job-exec &&
	flux module load job-exec &&
	wait_event "$id" clean &&
	! flux job status "$id" &&
	assert_no_units "$id" &&
	peer_timeout 30s
'

test_expect_success 'a guest namespace whose leader ended before it wrote to it' '
	flux exec -r all flux module remove job-exec &&
	id=$(flux submit sh -c "exit 3") &&
	wait_event "$id" alloc &&
	flux kvs namespace create "job-$(flux job id --to=dec "$id")" &&
	flux exec -r all flux module load job-exec &&
	wait_event -q "$id" clean &&
	test_expect_code 3 flux job status "$id" &&
	test "$(contexts "$id" exception)" = ""
'

# The broker passes the request on to rank 0, whose module has no such shell.
test_expect_success CONNECTOR 'a shell that enters the barrier while its module is away' '
	cat >late-shell <<-EOF &&
	#!/bin/sh
	rank=\$(flux getattr rank)
	echo >$PWD/late.there.\$rank
	cat $PWD/late.go.\$rank
	FLUX_HANDLE_TRACE=1 exec $(flux config builtin shell_path) "\$@" 2>$PWD/late.trace.\$rank
	EOF
	chmod +x late-shell &&
	gate late.there.0 late.there.1 late.go.0 late.go.1 &&
	id=$(flux submit -N2 -n2 --requires=rank:0-1 --setattr=system.exec.job_shell="$PWD/late-shell" true) &&
	wait_gate late.there.0 late.there.1 &&
	flux exec -r 1 flux module remove job-exec &&
	open_gate late.go.1 &&
	await grep -q shell-barrier late.trace.1 &&
	flux exec -r 1 flux module load job-exec &&
	open_gate late.go.0 &&
	wait_event "$id" clean &&
	flux job status "$id"
'

unit_has_exited() {
	test "$(systemctl --user show -p MainPID --value "$1")" = 0
}
test_expect_success 'a shell that ends while its module is away' '
	id=$(submit_gated away 1 --requires=rank:1) &&
	unit=$(units_of "$id") &&
	flux exec -r 1 flux module remove job-exec &&
	open_gate away.0 &&
	await unit_has_exited "$unit" &&
	flux exec -r 1 flux module load job-exec &&
	ended_well "$id" 0 1
'
test_expect_success 'shells that end while all modules are away, with a status' '
	id=$(submit_gated gone 4 -N4) &&
	units=$(units_of "$id") &&
	flux exec -r all flux module remove job-exec &&
	open_gate gone.0 gone.1 gone.2 gone.3 &&
	for unit in $units; do await unit_has_exited "$unit" || return 1; done &&
	flux exec -r 1-3 flux module load job-exec &&
	flux module load job-exec &&
	ended_well "$id" 768 4
'
test_expect_success 'output of the shell itself while the module is away is kept' '
	gate talk.there talk &&
	id=$(dummy_submit -N1 --requires=rank:1 "
		echo before >&2; echo >talk.there; cat talk; echo after >&2") &&
	wait_gate talk.there &&
	wait_event "$id" start &&
	unit=$(units_of "$id") &&
	flux exec -r 1 flux module remove job-exec &&
	open_gate talk &&
	await unit_has_exited "$unit" &&
	flux exec -r 1 flux module load job-exec &&
	wait_event "$id" clean &&
	test "$(contexts -p exec "$id" log | jq -j .data)" = "$(printf "before\nafter\n")"
'

# An initrc holds one shell back before the barrier, and reports when the shell is there.
test_expect_success 'shells that wait for each other wait on through a reload' '
	gate hold hold.there &&
	cat >initrc.lua <<-EOF &&
	if shell.info.rank == 1 then
	    os.execute ("echo > $PWD/hold.there; cat $PWD/hold")
	end
	EOF
	for ranks in 0 2 2-3 all; do
		id=$(flux submit -N2 -n2 --requires=rank:2-3 -o userrc=initrc.lua \
			bash -c "echo \$FLUX_TASK_RANK") &&
		wait_gate hold.there &&
		wait_event "$id" start &&
		flux exec -r $ranks flux module reload job-exec &&
		open_gate hold &&
		wait_event "$id" clean &&
		test "$(contexts "$id" exception)" = "" &&
		test "$(contexts "$id" finish)" = "{\"status\":0}" &&
		test "$(flux job attach "$id" | sort | xargs)" = "0 1" &&
		assert_no_units "$id" || return 1
	done
'
# Nobody else uses this bus.
[ -z "${USER_SYSTEMD_CGROUP:-}" ] || test_set_prereq OWN_BUS
# The third column is the state; I is being loaded.
is_loading() {
	test "$(flux exec -r 3 flux module list | awk "\$1 == \"job-exec\" {print \$3}")" = I
}
test_expect_success UNITS,OWN_BUS 'a module that is loaded while the bus is away waits for it' '
	id=$(submit_gated patient 1 -N1 --requires=rank:3) &&
	mv "$XDG_RUNTIME_DIR/bus" "$XDG_RUNTIME_DIR/bus.away" &&
	{ flux exec -r 3 flux module reload job-exec & } &&
	reload=$! &&
	await is_loading &&
	mv "$XDG_RUNTIME_DIR/bus.away" "$XDG_RUNTIME_DIR/bus" &&
	wait $reload &&
	open_gate patient.0 &&
	ended_well "$id" 0 1
'
test_expect_success 'with fork no module is loaded that would take units for lost' '
	id=$(submit_gated kept 1 -N1 --requires=rank:3) &&
	identities "$id" >kept.units &&
	test_must_fail flux exec -r 3 flux module reload job-exec method=fork 2>err &&
	flux exec -r 3 flux dmesg >>err &&
	grep "shells that run, .* are recorded in .*: exec.method is fork" err &&
	flux exec -r 3 flux module load job-exec &&
	await is_led "$id" &&
	identities "$id" >kept.now &&
	test_cmp kept.units kept.now &&
	open_gate kept.0 &&
	ended_well "$id" 0 1
'
test_expect_success 'nothing is left' '
	assert_no_units &&
	test "$(flux resource list -s allocated -no {nnodes})" = 0 &&
	flux run -N4 -n4 true
'

test_done
