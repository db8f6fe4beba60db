#!/bin/bash
test_description='what tools rely on: stats, configuration, the KVS of a job'
instance_size=2
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

guest=42

as_guest() {
	FLUX_HANDLE_USERID=$guest FLUX_HANDLE_ROLEMASK=0x2 "$@"
}
stats() {
	flux module stats job-exec
}
owners() {
	flux kvs namespace list | awk -v name="$(flux job namespace "$1")" '$1 == name {print $2}'
}
has_no_namespace() {
	test -z "$(owners "$1")"
}

# ---- stats and configuration -------------------------------------------------------------

test_expect_success 'defaults that other tests do not look at' '
	stats | jq -cS "[.[\"max-kill-timeout\", \"effective-max-kill-timeout\"],
		.config[\"default_cwd\", \"sdexec_constrain_resources\",
		\"sdexec_stop_timer_sec\", \"sdexec_stop_timer_signal\"]]" >actual &&
	echo "[-1,640,\"/tmp\",0,640,10]" | jq -c . >expected &&
	test_cmp expected actual &&
	stats | jq -e ".config | has(\"flux_imp_path\", \"sdexec_properties\") | not"
'
test_expect_success 'only the owner sees all stats and reloads the configuration' '
	as_guest test_must_fail rpc job-exec.config-reload "{}" 2>err && grep ^EPERM err &&
	as_guest rpc job-exec.stats-get "{}" >stats &&
	jq -e ".jobs == {} and .shells == {} and (has(\"config\") | not)" stats
'
# The delay is what is tested: with a timeout of no time at all the barrier would fail meanwhile.
test_expect_success 'barrier-timeout 0 and shell-exit-timeout none turn them off' '
	configure "barrier-timeout = \"0\"" "shell-exit-timeout = \"none\"" &&
	stats | jq -c "[.config[\"default_barrier_timeout\", \"shell_exit_timeout\"]]" >off &&
	echo "if shell.info.rank == 1 then os.execute(\"sleep 1\") end" >late.lua &&
	flux run -N2 -n2 -o userrc=late.lua true &&
	configure &&
	test "$(jq -c "map(. == 0)" off)" = "[true,true]"
'
# usage: refused_with LINE TEXT
refused_with() {
	test_must_fail configure "$1" 2>err && configure && grep -e "$2" err
}
test_expect_success 'what cannot be used is refused with these words' '
	refused_with "max-kill-timeout = \"0\"" "invalid max-kill-timeout: 0" &&
	refused_with "max-kill-count = 0" "invalid max-kill-count=0" &&
	refused_with "term-signal = \"SIGFOO\"" "invalid term-signal: SIGFOO" &&
	refused_with "service = 7" "error reading config value exec.service" &&
	refused_with "shell-exit-timeout = 7" "error reading config value exec.shell-exit-timeout" &&
	refused_with "barrier-timeout = \"7p\"" \
		"invalid duration .7p. specified for exec.barrier-timeout"
'
test_expect_success 'all keys of system.exec.bulkexec are taken' '
	flux run --setattr=system.exec.bulkexec.service=rexec \
		--setattr=system.exec.bulkexec.barrier-timeout=7.5 \
		--setattr=system.exec.bulkexec.sdexec-test-expected-cpus=0-1 \
		--setattr=system.exec.bulkexec.mock_exception=none true
'
test_expect_success 'stats of a job have these keys and no others' '
	id=$(flux submit -N2 -n2 -t 1h sleep inf) &&
	wait_event "$id" start &&
	wait_event -p exec "$id" shell.start &&
	stats_of "$id" >job &&
	jq -r "del(.state, .timers, .launch) | keys[]" job >actual && # these are ours
	printf "%s\n" active_ranks active_shells critical_ranks exception_in_progress expiration \
		finalizing has_namespace implementation kill_count kill_shell_count kill_timeout \
		multiuser ns running started total_shells >expected &&
	test_cmp expected actual
'
test_expect_success 'and these values' '
	jq -c "[.implementation, .ns, .critical_ranks, .multiuser, .has_namespace,
		.exception_in_progress, .finalizing, .kill_count, .kill_shell_count]" job >actual &&
	echo "[\"bulk-exec\",\"job-$(flux job id --to=dec "$id")\",\"0-1\",0,1,0,0,0,0]" >expected &&
	test_cmp expected actual &&
	limit=$(flux job info "$id" R | jq .execution.expiration) &&
	jq -e "(.expiration - $limit | fabs) < 1 and .kill_timeout == 5" job
'

# ---- the KVS -----------------------------------------------------------------------------

test_expect_success 'while the job runs, guest is a link to a namespace of its own' '
	flux kvs get --treeobj "$(flux job id --to=kvs "$id").guest" | jq -cS "[.type, .data]" >actual &&
	echo "[\"symlink\",{\"namespace\":\"job-$(flux job id --to=dec "$id")\",\"target\":\".\"}]" \
		>expected &&
	test_cmp expected actual
'
test_expect_success 'at its end guest is what was in the namespace, which is gone' '
	flux kvs put -N "$(flux job namespace "$id")" canary=alive &&
	flux cancel "$id" &&
	wait_event "$id" clean &&
	flux kvs get --treeobj "$(flux job id --to=kvs "$id").guest" | jq -r .type >type &&
	test "$(cat type)" = dirref &&
	test "$(flux kvs get "$(flux job id --to=kvs "$id").guest.canary")" = alive &&
	await has_no_namespace "$id"
'
test_expect_success 'the namespace is the one of the jobs user' '
	configure "testexec.allow-guests = true" &&
	id=$(guest_submit $guest --setattr=system.exec.test.run_duration=1h true) &&
	wait_event "$id" start &&
	test "$(owners "$id")" = $guest &&
	flux cancel "$id" &&
	wait_event "$id" clean &&
	configure
'
test_expect_success 'the exec eventlog of two shells begins with init and ends with done, each event once' '
	id=$(flux submit -N2 -n2 true) &&
	wait_event "$id" clean &&
	exec_events "$id" | grep -vx recoverable >events &&
	test "$(head -n 1 events)" = init &&
	test "$(tail -n 2 events | xargs)" = "complete done" &&
	test "$(sort events | uniq -d | grep -vx shell.task-exit)" = "" &&
	test "$(contexts -p exec "$id" complete)" = "{\"status\":0}"
'
test_expect_success OURS 'starting is before all that the shell says' '
	test "$(sed -n 2p events)" = starting
'
test_expect_success UNITS 'no unit is left' '
	assert_no_units
'

test_done
