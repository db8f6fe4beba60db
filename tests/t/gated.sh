# Sourced after lib.sh: jobs that wait at gates while something happens to the service.
#
# shellcheck shell=bash

# usage: submit_gated NAME TASKS [OPTION...]
# Submits a job whose tasks print a line, wait at the gate NAME.TASK, print another line, and end
# with the number of their task. Returns when all tasks wait, which each reports at another gate.
submit_gated() {
	local name=$1 tasks=$2 id task
	shift 2
	for task in $(seq 0 $((tasks - 1))); do
		gate "$name.$task" "$name.$task.there" || return 1
	done
	id=$(flux submit -n "$tasks" "$@" bash -c "
		echo before \$FLUX_TASK_RANK
		echo >$name.\$FLUX_TASK_RANK.there
		cat $name.\$FLUX_TASK_RANK
		echo after \$FLUX_TASK_RANK
		exit \$FLUX_TASK_RANK") &&
	wait_gate "$name".*.there >/dev/null &&
	wait_event -q "$id" start &&
	echo "$id"
}
# usage: identities JOBID. Properties that differ if a unit was started again.
identities() {
	local unit
	for unit in $(units_of "$1"); do
		echo "$unit $(systemctl --user show -p InvocationID -p MainPID "$unit" | sort | xargs)"
	done
}
# usage: is_led JOBID. Succeeds if the module has the job as running again.
is_led() {
	stats_of "$1" | jq -e '.running == 1'
}
# usage: ended_well JOBID STATUS TASKS
# Checks that the job ended as it would have without a reload.
ended_well() {
	local task
	wait_event "$1" clean &&
	test "$(contexts "$1" finish)" = "{\"status\":$2}" &&
	test "$(contexts "$1" exception)" = "" &&
	job_events "$1" | grep -vx release >events &&
	printf "%s\n" submit validate depend priority alloc start finish free clean \
		>events.expected &&
	test_cmp events.expected events &&
	test "$(contexts "$1" release | jq .final | grep -c true)" -eq 1 &&
	exec_events "$1" >exec-events &&
	grep -vx -e "reattach" -e "debug.lead" -e "debug.status" -e "recoverable" -e "shell.task-exit" exec-events | sort >actual &&
	printf "%s\n" complete "done" init shell-exit shell.init shell.start starting >expected &&
	test_cmp expected actual &&
	for task in $(seq 0 $(($3 - 1))); do
		echo "before $task"
		echo "after $task"
	done | sort >expected &&
	flux job attach "$1" 2>/dev/null | sort >actual &&
	test_cmp expected actual &&
	assert_no_units "$1"
}
