#!/bin/bash
test_description='flux job-exec-rs: doctor, units, status, logs'
instance_size=0
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

need_program
mkdir cmd
ln -s "$(realpath "$program")" cmd/flux-job-exec-rs
export FLUX_EXEC_PATH_PREPEND=$PWD/cmd

# One instance for all that only looks.
cat >look <<-\EOF
	id=$(flux submit -N2 -n2 sleep inf) &&
	flux job wait-event -t 30 $id start >/dev/null &&
	flux job id --to=f58plain $id >id &&
	flux job-exec-rs units >units-here 2>&1
	flux job-exec-rs units --all --json >units-all 2>units-err
	flux job-exec-rs units --all $id -o "{rank}:{stage}" >units-columns 2>&1
	flux job-exec-rs units -o "{rnak}" >units-bad 2>&1
	flux job-exec-rs status >status 2>&1
	flux job-exec-rs doctor >doctor 2>&1
	echo $? >doctor-status
	flux job-exec-rs doctor --all --json >doctor-all 2>doctor-err
	flux exec -r 1 flux module remove job-exec
	flux job-exec-rs doctor --all --json >doctor-away 2>&1
	flux exec -r 1 flux module load job-exec
	flux cancel $id
	flux job wait-event -t 30 $id clean >/dev/null
	flux job-exec-rs logs $id >logs 2>logs-err
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
test_expect_success 'status says how far each job is' '
	grep "^1 job:" status &&
	grep "led by rank 0: runs, 2 of 2 shells" status
'
test_expect_success 'doctor looks at this node, and says what mends what it finds' '
	grep "good  module  *job-exec-rs [0-9]" doctor &&
	grep "BAD   installation  .* missing" doctor &&
	grep -- "-> job-exec-rs install" doctor &&
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
test_expect_success 'a rank without the module is named, with what to do' '
	jq -e "select(.rank == 1) | .findings[] |
		select(.check == \"module\" and .grade == \"bad\" and .mend != null)" doctor-away
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
test_done
