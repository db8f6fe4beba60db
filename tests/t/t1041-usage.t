#!/bin/bash
test_description='what jobs have used'
instance_size=2
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

if ! test_have_prereq UNITS; then
	skip_all='needs our module and a user systemd'
	test_done
fi

# shellcheck source=gated.sh
. "$here/gated.sh"
need_command

# Uses the CPU for half a second, and prints its own user time.
cat >burn.py <<-EOF
	import os
	while os.times().user < 0.5:
	    sum(range(10000))
	print("used", os.times().user, flush=True)
EOF
no_slices() {
	test -z "$(all_slices)"
}
# usage: covers FILE KEY LINES. The kernel has counted what the tasks have measured themselves, and less
# than twice as much as all of them would have used together with the shell and its start.
covers() {
	python3 - "$@" <<-\EOF
		import json, sys
		usage = json.load(open(sys.argv[1]))
		used = [float(line.split()[-1]) for line in open(sys.argv[3]) if "used" in line]
		told = [user + system for user, system in zip(usage["user"], usage["system"])]
		print(usage, used)
		assert len(told) == len(used) == int(sys.argv[2]), "a figure for each rank"
		assert all(user >= min(used) for user in usage["user"]), "all of it"
		assert sum(told) < 10 * sum(used) + 10, "of these jobs alone"
	EOF
}

test_expect_success 'each rank has its figures, which whoever may read the job can read' '
	flux run -N2 --tasks-per-node=1 python3 burn.py >out &&
	id=$(flux job last) &&
	wait_event "$id" clean &&
	flux job info "$id" usage >usage &&
	jq -e ".version == 1 and .ranks == \"0-1\" and .unknown == null" usage &&
	covers usage 2 out
'
test_expect_success 'flux jobs shows them' '
	flux jobs -a -no "{user.usage.cpu}" "$id" | grep "[0-9]s$"
'
test_expect_success 'so does the command, as a table, as JSON, and in columns' '
	flux job-exec-rs usage "$id" >table &&
	test_when_finished "cat table" &&
	head -n 1 table | grep "RANK HOST.*MEMORY.*USER" &&
	grep "^in all: [0-9.]*s of CPU" table &&
	flux job-exec-rs usage --json "$id" | jq -es "length == 2 and .[1].rank == 1 and .[1].user >= 0.4" &&
	flux job-exec-rs usage -no "{rank}" --sort=-rank "$id" >ranks &&
	printf "1\n0\n" | test_cmp - ranks
'
test_expect_success 'nothing is left of the slices' '
	await no_slices
'
test_expect_success 'a job that runs has its slices, which the owner can read' '
	id=$(submit_gated live 2 -N2) &&
	test "$(all_slices | wc -l)" -eq 2 &&
	test_must_fail flux job info "$id" usage &&
	flux job-exec-rs usage --json "$id" >live &&
	test_when_finished "cat live" &&
	jq -es "length == 2 and all(.[]; .cpu > 0)" live &&
	flux job-exec-rs units --all --json "$id" | jq -es "all(.[]; .cpu > 0)"
'
test_expect_success 'they outlive the module, and so does what was counted before' '
	before=$(flux job-exec-rs usage --json "$id" | jq -s "map(.cpu) | add") &&
	flux exec -r all flux module remove job-exec &&
	test "$(all_slices | wc -l)" -eq 2 &&
	open_gate live.0 live.1 &&
	flux module load job-exec && flux exec -r 1 flux module load job-exec &&
	wait_event "$id" clean &&
	flux job info "$id" usage >usage &&
	jq -e ".ranks == \"0-1\" and .unknown == null" usage &&
	jq -e "(.user + .system | add) >= $before" usage &&
	await no_slices
'
test_expect_success 'a shell that fails, or is killed, has its figures, and leaves no slice' '
	id=$(flux submit -N2 --tasks-per-node=1 sh -c "exit 3") &&
	wait_event "$id" clean &&
	flux job info "$id" usage | jq -e ".ranks == \"0-1\"" &&
	id=$(flux submit sleep inf) && wait_event "$id" start &&
	flux cancel "$id" && wait_event "$id" clean &&
	flux job info "$id" usage | jq -e "(.ranks | length) > 0" &&
	await no_slices
'
test_expect_success 'with exec.usage = false there is no slice, no figure, and a reason' '
	test_when_finished "flux config get | jq \"del(.exec.usage)\" | flux config load" &&
	flux config get | jq ".exec.usage = false" | flux config load &&
	id=$(submit_gated plain 1 -N1) &&
	no_slices &&
	open_gate plain.0 && wait_event "$id" clean &&
	test_must_fail flux job info "$id" usage &&
	test_must_fail flux job-exec-rs usage "$id" 2>err &&
	grep "nothing was measured (exec.usage" err
'
test_expect_success 'a slice that is configured is the parent' '
	test_when_finished "flux config get | jq \"del(.exec)\" | flux config load" &&
	flux config get | jq ".exec.\"sdexec-properties\".Slice = \"a-b.slice\"" | flux config load &&
	id=$(submit_gated parent 1 -N1) &&
	all_slices | grep "^a-b-shell_" &&
	open_gate parent.0 && wait_event "$id" clean &&
	flux job info "$id" usage | jq -e ".user | length == 1" &&
	await no_slices
'
test_expect_success 'a job that there is not is named' '
	test_must_fail flux job-exec-rs usage f2 2>err &&
	grep "f2: " err
'
test_done
