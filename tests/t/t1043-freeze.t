#!/bin/bash
test_description='flux job-exec-rs freeze and thaw, and doctor --jobs'
instance_size=3
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

if ! test_have_prereq UNITS; then
	skip_all='needs our module and a user systemd'
	test_done
fi
need_command

# Each task counts in a file of its own, until the file `over` is there.
mkfifo pause
cat >count.sh <<-\EOF
	n=0
	until [ -e over ]; do
	    n=$((n + 1))
	    echo $n >next.$FLUX_TASK_RANK && mv next.$FLUX_TASK_RANK count.$FLUX_TASK_RANK
	    read -rt 0.02 <>pause # nobody writes there
	done
	exit 0
	EOF
counts() {
	cat count.0 count.1 count.2 | xargs
}
# usage: counts_on COUNT COUNT COUNT. All three tasks have counted on since.
counts_on() {
	local now
	read -ra now <<<"$(counts)"
	[ "${now[0]}" -gt "$1" ] && [ "${now[1]}" -gt "$2" ] && [ "${now[2]}" -gt "$3" ]
}
# usage: states JOBID. Those of its units, as a set.
states() {
	flux job-exec-rs units --all -no "{state}" "$1" | sort -u | xargs
}
no_slices() {
	test -z "$(all_slices)"
}
nothing_drained() {
	test -z "$(flux resource drain -no "{ranks}")"
}
as_guest() {
	FLUX_HANDLE_USERID=42 FLUX_HANDLE_ROLEMASK=0x2 "$@"
}

test_expect_success 'a job that is frozen stands still on all its ranks' '
	id=$(flux submit -N3 -n3 bash count.sh) &&
	await counts_on 0 0 0 &&
	flux job-exec-rs freeze "$id" >said && cat said &&
	before=$(counts) &&
	for rank in 0 1 2; do
		grep "(rank $rank): frozen: .*shell_${rank}_.*[.]slice\$" said || return 1
	done &&
	grep "$id: its time limit goes on; job-exec-rs thaw $id ends the freeze" said &&
	test "$(states "$id")" = frozen &&
	test "$(counts)" = "$before"
'
test_expect_success 'why says it' '
	flux job-exec-rs why "$id" >said && cat said &&
	grep "^  frozen: on .* (ranks 0-2): until job-exec-rs thaw $id its" said
'
test_expect_success 'it outlives the modules' '
	flux exec -r all flux module reload job-exec &&
	known() { test "$(states "$id")" = frozen && flux job-exec-rs why "$id" | grep "ranks 0-2"; } &&
	await known &&
	test "$(counts)" = "$before"
'
test_expect_success 'another user may neither freeze nor thaw it' '
	for verb in freeze thaw; do
		as_guest test_must_fail flux job-exec-rs $verb "$id" >said 2>err && cat err &&
		test_must_be_empty said && grep "only the instance owner can do that" err || return 1
	done &&
	test "$(states "$id")" = frozen
'
test_expect_success 'a job that is thawed goes on, and ends well' '
	flux job-exec-rs thaw "$id" >said && cat said &&
	test "$(grep -c ": thawed: " said)" = 3 &&
	await counts_on $before &&
	test "$(states "$id")" = active &&
	flux job-exec-rs why "$id" >said && cat said &&
	test_must_fail grep frozen said &&
	flux job-exec-rs thaw "$id" &&
	touch over &&
	wait_event "$id" clean &&
	flux job status "$id" &&
	await no_slices
'
test_expect_success 'a frozen job that is cancelled ends' '
	configure "kill-timeout = \"0.5s\"" &&
	id=$(flux submit -N3 -n3 sleep inf) &&
	wait_event -p exec "$id" shell.start &&
	flux job-exec-rs freeze "$id" &&
	test "$(states "$id")" = frozen &&
	flux cancel "$id" &&
	wait_event "$id" clean &&
	test "$(contexts "$id" exception | jq -r .type)" = cancel &&
	assert_no_units "$id" &&
	await no_slices &&
	nothing_drained
'
test_expect_success 'one that is thawed then ends as any other' '
	configure "kill-timeout = \"1h\"" &&
	id=$(flux submit -N3 -n3 sleep inf) &&
	wait_event -p exec "$id" shell.start &&
	flux job-exec-rs freeze "$id" &&
	flux cancel "$id" &&
	flux job-exec-rs thaw "$id" &&
	wait_event "$id" clean &&
	configure &&
	nothing_drained
'
test_expect_success 'a rank that does not answer is named, and the others are frozen' '
	id=$(flux submit -N3 -n3 sleep inf) &&
	wait_event -p exec "$id" shell.start &&
	flux exec -r 2 flux module remove job-exec &&
	test_must_fail flux job-exec-rs freeze "$id" >said 2>err && cat said err &&
	test "$(grep -c ": frozen: " said)" = 2 &&
	grep "^job-exec-rs: rank 2: " err &&
	flux exec -r 2 flux module load job-exec &&
	await flux job-exec-rs thaw "$id" &&
	flux cancel "$id" &&
	wait_event "$id" clean
'
test_expect_success 'a job without a slice is refused, and runs on' '
	test_when_finished configure &&
	configure "usage = false" &&
	id=$(flux submit -n1 --requires=rank:0 sleep inf) &&
	wait_event "$id" start &&
	test_must_fail flux job-exec-rs freeze "$id" >said 2>err && cat err &&
	test_must_be_empty said &&
	grep "rank 0: no slice of $id: .*exec.usage was false" err &&
	test "$(states "$id")" = active &&
	flux cancel "$id" &&
	wait_event "$id" clean
'
test_expect_success 'so is one that has ended' '
	test_must_fail flux job-exec-rs freeze "$id" 2>err && cat err &&
	grep "does not run\|no shell of" err
'

# usage: on_rank_1. Submits a job that waits at the gate leave, and prints its id and the pid of its task.
on_rank_1() {
	gate there leave
	flux job id --to=f58plain "$(flux submit -n1 --requires=rank:1 bash -c "echo \$\$ >there; cat leave")" &&
		wait_gate there
}
# usage: doctor STATUS [OPTION...]. What doctor --jobs says is in the file said.
doctor() {
	test_expect_code "$1" flux job-exec-rs doctor --jobs "${@:2}" >said 2>err
	local status=$?
	cat said err
	return $status
}
test_expect_success 'where no job is doctor says that' '
	doctor 0 --all &&
	grep "good  jobs  *all  *none has a process here" said
'
test_expect_success 'of a sound job nothing is bad' '
	read -r id pid <<<"$(on_rank_1 | xargs)" && test -n "$pid" &&
	doctor 0 --all &&
	head -n 1 said | grep "3 ranks: 3 fit" &&
	grep "good  $id shell  *1  *all its processes are in its unit" said &&
	flux job-exec-rs doctor --all --json --jobs "$id" >json && cat json &&
	jq -es "length == 1 and .[0].rank == 1 and all(.[0].findings[]; .grade == \"good\")" json
'
test_expect_success 'a process that has left its unit is named, and how it is put back' '
	systemd-run --user --quiet --unit=elsewhere sleep inf &&
	elsewhere=/sys/fs/cgroup$(systemctl --user show -p ControlGroup --value elsewhere) &&
	echo "$pid" >"$elsewhere/cgroup.procs" &&
	doctor 1 --all --bad-only &&
	head -n 1 said | grep "1 unfit (1)" &&
	grep "BAD   $id shell  *1  *outside of shell-1-.*: 1 process: $pid [a-z]* in elsewhere.service" said &&
	sed -n "s/.*-> //p" said | sed "s/sudo //" | bash &&
	doctor 0 "$id" --all &&
	open_gate leave &&
	wait_event "$id" clean &&
	systemctl --user stop elsewhere
'
test_expect_success 'a job that there is not, and another user, are refused' '
	doctor 2 f2 --all &&
	as_guest doctor 2 && grep "only the instance owner can do that" err
'
# usage: is_delegated CONTROLLER
is_delegated() {
	local group=/sys/fs/cgroup$(systemctl --user show -p ControlGroup --value)
	grep -qw "$1" "$group/cgroup.controllers"
}
# usage: limit_is CONTROLLER PROPERTY WANTED. In the file said.
limit_is() {
	local text="wanted $3, in force"
	is_delegated "$1" || text+=" none: controller $1 is not delegated"
	grep "$id $2  *$text" said
}
test_expect_success 'a limit is in force, or its controller is named' '
	test_when_finished configure &&
	configure "sdexec-properties = { MemoryMax = \"1G\", TasksMax = \"400\" }" &&
	id=$(flux job id --to=f58plain "$(flux submit -n1 --requires=rank:0 sleep inf)") &&
	wait_event "$id" start &&
	if is_delegated memory && is_delegated pids; then status=0; else status=1; fi &&
	doctor $status "$id" &&
	limit_is memory MemoryMax 1.0G &&
	limit_is pids TasksMax 400
'
test_expect_success 'a limit that somebody has lifted is named' '
	if is_delegated pids; then
		group=$(systemctl --user show -p ControlGroup --value "$(units_of "$id")") &&
		echo max >"/sys/fs/cgroup$group/pids.max" &&
		doctor 1 "$id" --bad-only &&
		grep "BAD   $id TasksMax  *wanted 400, in force " said
	fi &&
	flux cancel "$id" &&
	wait_event "$id" clean
'
test_done
