#!/bin/bash
test_description='shells as systemd units: what they are, and what ends with them'
instance_size=4
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

if ! test_have_prereq UNITS; then
	skip_all='needs our module and a user systemd'
	test_done
fi

property() {
	systemctl --user show -p "$1" --value "$2"
}
# usage: alive PID. A zombie is not alive.
alive() {
	[ -e "/proc/$1" ] && [ "$(awk '/^State:/ {print $2}' "/proc/$1/status")" != Z ]
}
# usage: running_sleep OPTION...
running_sleep() {
	local id
	id=$(flux submit "$@" sleep inf) &&
	wait_event -q -p exec "$id" shell.start &&
	wait_event -q "$id" start &&
	echo "$id"
}

test_expect_success 'a running job has one unit per rank, named after rank and job' '
	id=$(running_sleep -N4 -n8) &&
	plain=$(flux job id --to=f58plain "$id") &&
	units_of "$id" >units &&
	sed "s/-[0-9a-f]\{8\}\.service\$//" units >actual &&
	printf "shell-%d-$plain\n" 0 1 2 3 >expected &&
	test_cmp expected actual
'
test_expect_success 'the units say what they are' '
	for unit in $(cat units); do
		test "$(property RemainAfterExit "$unit")" = yes &&
		property Description "$unit" | grep "$plain" &&
		test "$(property ActiveState "$unit")" = active &&
		test "$(property MainPID "$unit")" -gt 0 || return 1
	done
'
test_expect_success 'tasks are in the cgroup of their unit' '
	for pid in $(flux job hostpids "$id" | tr , "\n" | sed "s/.*://"); do
		grep -o "shell-.-$plain-[0-9a-f]*\.service" /proc/$pid/cgroup || return 1
	done | sort | uniq -c >tasks &&
	test "$(awk "{print \$1}" tasks | xargs)" = "2 2 2 2"
'
test_expect_success 'no unit is left when the job has ended' '
	flux cancel "$id" &&
	wait_event "$id" clean &&
	assert_no_units
'
test_expect_success 'nor after a job that failed' '
	test_expect_code 3 flux run -N2 -n2 bash -c "exit 3" &&
	test_expect_code 127 flux run /nosuch/command &&
	assert_no_units
'
# pmi=off: flux-shell waits until a task's PMI socket is closed, and the process that the task
# leaves behind holds it open.
test_expect_success 'what a task leaves behind has ended when the job is clean' '
	id=$(flux submit -o pmi=off bash -c "
		setsid sleep inf </dev/null >/dev/null 2>&1 & echo \$! >left.pid") &&
	wait_event "$id" clean &&
	flux job status "$id" &&
	! alive "$(cat left.pid)"
'
test_expect_success 'also when it does not want to' '
	flux module reload job-exec kill-timeout=0.2s &&
	gate stubborn &&
	id=$(flux submit -o pmi=off bash -c "
		setsid bash -c \"trap : TERM; echo >stubborn; while :; do sleep 1; done\" \
			</dev/null >/dev/null 2>&1 &
		echo \$! >stubborn.pid
		cat stubborn") &&
	wait_event "$id" clean &&
	flux job status "$id" &&
	! alive "$(cat stubborn.pid)" &&
	flux module reload job-exec
'
# As in flux-core: the leader shell is notified and decides; the job does not end for this.
test_expect_success 'a shell that is killed is reported, which one and how' '
	id=$(running_sleep -N4 -n4) &&
	kill -KILL "$(property MainPID "$(units_of "$id" | sed -n 3p)")" &&
	wait_event -p output "$id" log >log &&
	grep "shell rank 2 .*Killed" log &&
	flux cancel "$id" &&
	wait_event "$id" clean &&
	assert_no_units "$id"
'
test_expect_success 'when it is the leader shell, the job ends with an exception' '
	id=$(running_sleep -N2 -n2) &&
	kill -KILL "$(property MainPID "$(units_of "$id" | sed -n 1p)")" &&
	wait_event "$id" clean &&
	contexts "$id" exception >exceptions &&
	grep "shell rank 0 .*Killed" exceptions &&
	! flux job status "$id" &&
	assert_no_units "$id"
'
# As in flux-core: the status shows it.
test_expect_success 'when it is the only one, the job ends with its status' '
	id=$(running_sleep -n1) &&
	kill -KILL "$(property MainPID "$(units_of "$id")")" &&
	wait_event "$id" clean &&
	test "$(contexts "$id" finish)" = "{\"status\":9}" &&
	test_expect_code 137 flux job status "$id" &&
	assert_no_units "$id"
'
test_expect_success 'a unit that somebody stops ends its job, with an error' '
	id=$(running_sleep -n1) &&
	systemctl --user stop "$(units_of "$id")" &&
	wait_event "$id" clean &&
	! flux job status "$id" &&
	assert_no_units "$id"
'
test_expect_success 'and with an error when the other ranks end well' '
	gate there.0 there.1 end.0 end.1 &&
	id=$(flux submit -N2 -n2 bash -c "
		echo >there.\$FLUX_TASK_RANK; cat end.\$FLUX_TASK_RANK") &&
	wait_gate there.0 there.1 &&
	systemctl --user stop "$(units_of "$id" | sed -n 2p)" &&
	open_gate end.0 &&
	wait_event "$id" clean &&
	! flux job status "$id" &&
	assert_no_units "$id"
'
test_expect_success 'another instance of the same user does not touch our units' '
	id=$(running_sleep -N2 -n2) &&
	units_of "$id" >before &&
	run_instance 2 flux run -N2 -n2 true &&
	units_of "$id" >after &&
	test_cmp before after &&
	test "$(flux jobs -no "{state}" "$id")" = RUN &&
	flux cancel "$id" &&
	wait_event "$id" clean &&
	assert_no_units "$id"
'
test_expect_success 'no unit is left' '
	assert_no_units
'

test_done
