#!/bin/bash
test_description='flux job-exec-rs: doctor, units, status, logs, metrics'
instance_size=0
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

need_command

# One instance for all that only looks.
cat >look <<-\EOF
	id=$(flux submit -N2 -n2 sleep inf) &&
	flux job wait-event -t 30 -p exec $id shell.start >/dev/null &&
	flux job id --to=f58plain $id >id &&
	flux job-exec-rs units >units-here 2>&1
	flux job-exec-rs units --all --json >units-all 2>units-err
	flux job-exec-rs units --all $id -o "{rank}:{stage}" >units-columns 2>&1
	flux job-exec-rs units -o "{rnak}" >units-bad 2>&1
	flux job-exec-rs units -n >units-bare 2>&1
	flux job-exec-rs status >status 2>&1
	flux job-exec-rs status $id >status-job 2>&1
	flux job-exec-rs status --json $id >status-json 2>&1
	flux job-exec-rs status f2 >status-none 2>&1
	echo $? >status-none-status
	flux job-exec-rs metrics >metrics 2>&1
	flux job-exec-rs metrics --output metrics.prom
	flux job-exec-rs perilog list --json $id >perilog 2>&1
	flux job-exec-rs perilog list -n >>perilog 2>&1
	flux job-exec-rs doctor >doctor 2>&1
	echo $? >doctor-status
	flux job-exec-rs doctor --all --json >doctor-all 2>doctor-err
	flux job-exec-rs doctor --all >doctor-groups 2>&1
	flux job-exec-rs doctor --all --bad-only >doctor-bad 2>&1
	flux exec -r 1 flux module remove job-exec
	flux job-exec-rs doctor --all --json >doctor-away 2>&1
	flux job-exec-rs units --all -n >units-away 2>units-away-err
	echo $? >units-away-status
	flux job-exec-rs logs $id >logs-away 2>logs-away-err
	echo $? >logs-away-status
	flux exec -r 1 flux job-exec-rs metrics >metrics-away 2>&1
	echo $? >metrics-away-status
	flux job-exec-rs status --all >status-away 2>status-away-err
	echo $? >status-away-status
	flux exec -r 1 flux module load job-exec
	flux job-exec-rs logs $id 2>head-err | head -n 1 >head
	{ flux job-exec-rs logs --follow --json $id >logs-follow 2>&1; echo $? >follow-status; } &
	flux cancel $id
	flux job wait-event -t 30 $id clean >/dev/null
	wait
	flux job-exec-rs status --all >status-found 2>&1
	flux job-exec-rs logs $id >logs 2>logs-err
	flux job-exec-rs logs --since 0.001s $id >logs-since 2>&1
	flux job-exec-rs logs f2 >logs-none 2>&1
	echo $? >logs-status
EOF
test_expect_success 'an instance with a job is looked at' '
	run_instance 2 bash look
'
test_expect_success 'units shows where the shells of this node are' '
	head -1 units-here | grep "^JOBID .*RANK .*UNIT" &&
	test "$(grep -c " shell " units-here)" = 1
'
test_expect_success 'with --all of each rank, with its process' '
	test_must_be_empty units-err &&
	jq -s -e "map(.rank) | sort == [0, 1]" units-all &&
	jq -s -e "all(.pid > 1 and .stage == \"shell\")" units-all &&
	test "$(sort units-columns | tr "\n" " ")" = "0:shell 1:shell RANK:STAGE "
'
test_expect_success UNITS 'and what systemd knows of it' '
	jq -s -e "all(.state == \"active\" and .processes > 1)" units-all
'
test_expect_success 'a column that there is not is named' '
	grep "no column .rnak., there are jobid, rank" units-bad
'
test_expect_success 'there may be no header' '
	test "$(wc -l <units-bare)" = 1 && grep " shell " units-bare
'
test_expect_success 'status says how far each job is' '
	grep "^1 job:" status &&
	grep "led by rank 0: runs, 2 of 2 shells" status
'
test_expect_success 'also of one job alone, and for programs' '
	test "$(wc -l <status-job)" = 1 &&
	grep "led by rank 0: runs, 2 of 2 shells" status-job &&
	jq -e ".job.active_shells == 2 and .led.leader == 0" status-json &&
	grep "f2 does not run" status-none &&
	test "$(cat status-none-status)" = 1 &&
	test_must_be_empty perilog
'
test_expect_success 'doctor looks at this node, and says what mends what it finds' '
	grep "good  module  *job-exec-rs [0-9]" doctor &&
	grep "BAD   installation  .* missing" doctor &&
	grep -- "-> sudo .*/job-exec-rs install" doctor &&
	test "$(cat doctor-status)" = 1
'
test_expect_success 'without its broker it says that, and no more than that' '
	test_must_fail env FLUX_URI=local:///nowhere flux job-exec-rs doctor >doctor-alone 2>&1 &&
	grep "BAD   broker  .* cannot connect" doctor-alone &&
	grep "flux-core  .*$(env -u FLUX_URI flux version | awk "/^commands/ {print \$2}")" doctor-alone
'
test_expect_success UNITS 'a unit can be started, and none is left' '
	grep "good  unit " doctor &&
	grep "good  shells " doctor &&
	grep "good  leftovers  *none" doctor &&
	test_must_fail grep doctor <<<"$(all_units)"
'
test_expect_success 'with --all each rank looks for itself' '
	test_must_be_empty doctor-err &&
	jq -s -e "map(.rank) == [0, 1]" doctor-all
'
test_expect_success 'ranks that have found the same share a line, bad ones come first' '
	head -1 doctor-groups | grep "2 ranks: 0 fit, 2 unfit (0-1)" &&
	sed -n 2p doctor-groups | grep "BAD   installation  *all " &&
	grep "good  module  *all  *job-exec-rs [0-9]" doctor-groups
'
test_expect_success 'and may be all that is shown' '
	grep "BAD   installation" doctor-bad &&
	test_must_fail grep "good\|note" doctor-bad
'
test_expect_success 'a rank without the module is named, with what to do' '
	jq -e "select(.rank == 1) | .findings[] |
		select(.check == \"module\" and .grade == \"bad\" and .mend != null)" doctor-away
'
test_expect_success 'units and logs show the others, say why it does not answer, and fail' '
	test "$(cat units-away-status) $(cat logs-away-status)" = "1 1" &&
	grep "^.* 0 .* shell " units-away &&
	grep "job-exec-rs: rank 1: .*" units-away-err &&
	grep "job-exec-rs: rank 1: .*" logs-away-err &&
	grep " job  *submit" logs-away
'
test_expect_success UNITS 'status says what a rank has found after its load' '
	test "$(cat status-away-status)" = 1 &&
	grep "job-exec-rs: rank 1: " status-away-err &&
	test_must_fail grep found status-away &&
	grep "^rank 1 has found 1 shell after its load: " status-found &&
	test_must_fail grep "^rank 0 has found" status-found
'
test_expect_success 'metrics are of this node, also without its module' '
	for line in "job_exec_up 1" "job_exec_units_total 1" "job_exec_shells 1" "job_exec_led_jobs 1" \
		"job_exec_drained_nodes_total 0" "job_exec_found_shells{fate=.running.} 0"; do
		grep -x "$line" metrics || return 1
	done &&
	test "$(tail -n 1 metrics)" = "# EOF" &&
	test "$(grep -v -e _total -e _age_ metrics)" = "$(grep -v -e _total -e _age_ metrics.prom)" &&
	test "$(cat metrics-away-status)" = 0 &&
	grep -x "job_exec_up 0" metrics-away &&
	test "$(grep -vc "^#" metrics-away)" = 1
'
test_expect_success 'a reader that goes away is no error' '
	grep submit head &&
	test_must_be_empty head-err
'
test_expect_success 'logs follows a job to its end, with each line once' '
	test "$(cat follow-status)" = 0 &&
	jq -s -e "map(select(.text == \"clean\")) | length == 1" logs-follow &&
	jq -s -e "map(select(.text | startswith(\"submit\"))) | length == 1" logs-follow
'
test_expect_success 'and leaves out what is older' '
	test_must_fail grep submit logs-since
'
test_expect_success 'logs has what the KVS, the brokers and the records know, in order of time' '
	grep " job  *submit" logs &&
	grep " exec  *complete" logs &&
	grep "rank 0  *broker .*: rank 1 does not answer" logs &&
	for rank in 0 1; do
		grep -q "rank $rank  *systemd " logs || return 1
	done &&
	cut -d" " -f1 logs >times &&
	sort -c times
'
test_expect_success 'a job that there is not is an error' '
	test "$(cat logs-status)" = 1 &&
	grep "job-exec-rs: " logs-none
'
# What a rank has, whose broker does not answer any more.
cat >hang <<-\EOF
	pid=$(flux exec -r 1 flux getattr broker.pid)
	kill -STOP $pid
	flux job-exec-rs doctor --all --timeout 5s >hang-doctor 2>&1
	echo $? >hang-status
	flux job-exec-rs units --all --timeout 1s >hang-units 2>&1
	echo $? >>hang-status
	kill -CONT $pid
EOF
test_expect_success 'a rank that hangs is named, and the others are shown' '
	run_instance 2 bash hang &&
	grep "2 ranks: .* 1 without an answer (1)" hang-doctor &&
	grep "?     answer  *1  *no answer within 5 s" hang-doctor &&
	grep "good  module  *0 " hang-doctor &&
	grep "rank 1: no answer within 1 s" hang-units &&
	test "$(xargs <hang-status)" = "1 1"
'
test_expect_success 'who cannot look has another status' '
	test_expect_code 2 env FLUX_URI=local:///nowhere flux job-exec-rs doctor --all
'
# Jobs begin and end while doctor looks.
cat >storm <<-\EOF
	flux submit --quiet --cc=1-200 true &&
	for look in $(seq 15); do
		flux job-exec-rs doctor --json
	done >storm-looks
	flux queue drain
EOF
test_expect_success UNITS 'short jobs leave nothing that doctor takes for left over' '
	run_instance 1 bash storm &&
	jq -s -e "length == 15 and
		all(.[].findings[] | select(.check == \"leftovers\"); .grade == \"good\")" storm-looks
'
cat >inside <<-\EOF
	flux alloc -N1 --conf=resource.noverify=true flux job-exec-rs doctor --json >inside-doctor
EOF
test_expect_success 'in an instance inside a job all is good that can be' '
	test_expect_code 1 run_instance 1 bash inside &&
	jq -e ".findings | length > 8" inside-doctor &&
	jq -e "[.findings[] | select(.grade != \"good\") | .check] - [\"installation\"] == []" inside-doctor
'
# flux-core has a job-exec, too.
cat >other <<-\EOF
	flux job-exec-rs status >other-status 2>&1
	flux job-exec-rs doctor >other-doctor 2>&1
EOF
test_expect_success 'the job-exec of flux-core is named' '
	(
		unset FLUX_MODULE_PATH_PREPEND FLUX_MODPROBE_PATH_APPEND
		test_expect_code 1 run_instance 1 bash other
	) &&
	test_when_finished "cat other-doctor" &&
	grep "flux-core.s own job-exec is loaded" other-status &&
	grep "BAD   module  *flux-core.s own job-exec is loaded" other-doctor &&
	grep -- "-> ENDS all jobs:" other-doctor
'
test_done
