#!/bin/bash
test_description='the module itself: load and unload, arguments, configuration, stats'
instance_size=2
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

# usage: stat_of EXPRESSION
stat_of() {
	flux module stats job-exec | jq -c "$1"
}

test_expect_success 'the module can be removed and loaded while nothing runs' '
	flux module remove job-exec &&
	flux module load job-exec &&
	flux run -N2 -n2 true
'
test_expect_success 'and reloaded, many times' '
	for i in $(seq 10); do
		flux module reload job-exec || return 1
	done &&
	flux run -N2 -n2 true
'
test_expect_success OURS 'on each rank by itself' '
	flux exec -r 1 flux module reload job-exec &&
	flux run -N2 -n2 true &&
	flux exec -r all flux module reload job-exec &&
	flux run -N2 -n2 true
'
test_expect_success 'jobs submitted while it is away run when it is back' '
	flux module remove job-exec &&
	id=$(flux submit -N2 -n2 true) &&
	wait_event "$id" alloc &&
	flux module load job-exec &&
	wait_event "$id" clean &&
	flux job status "$id"
'

started_once() {
	job_events "$1" >events && test "$(grep -cx start events)" = 1 && ! grep -x exception events
}
test_expect_success 'a start request meets no gap while the module is reloaded' '
	{ flux submit --cc=1-40 true >ids & } &&
	for i in $(seq 10); do
		flux module reload job-exec || return 1
	done &&
	wait $! &&
	for id in $(cat ids); do
		wait_event -q "$id" clean &&
		flux job status "$id" &&
		started_once "$id" || return 1
	done &&
	test "$(wc -l <ids)" -eq 40
'
# usage: late JOBID. How much later than in its R a job expires, in seconds.
late() {
	local expires
	expires=$(flux job info "$1" R | jq .execution.expiration) &&
	stats_of "$1" | jq ".expiration - $expires"
}
test_expect_success 'a job that starts late has its time all the same, if much of it is gone' '
	flux module remove job-exec &&
	short=$(flux submit -t 6s sleep inf) &&
	long=$(flux submit -t 1h sleep inf) &&
	for id in $short $long; do wait_event "$id" alloc || return 1; done &&
	# The delay is what is tested: over a quarter of the time of one job, and not of the other.
	sleep 2 &&
	flux module load job-exec &&
	for id in $short $long; do wait_event "$id" start || return 1; done &&
	late "$short" | jq -e ". > 1.9" &&
	late "$long" | jq -e "fabs < 0.01" &&
	flux cancel "$short" "$long" &&
	for id in $short $long; do wait_event "$id" clean || return 1; done
'
test_expect_success 'stats have what administrators are told to look at' '
	flux module stats job-exec >stats &&
	for key in method kill-timeout term-signal kill-signal max-kill-count \
		max-kill-timeout effective-max-kill-timeout jobs config; do
		jq -e --arg key $key "has(\$key)" stats || { echo "no $key"; return 1; }
	done
'
test_expect_success 'stats have the configuration in use' '
	for key in default_cwd default_job_shell exec_service default_barrier_timeout \
		shell_exit_timeout sdexec_stop_timer_sec sdexec_stop_timer_signal; do
		jq -e --arg key $key ".config | has(\$key)" stats || { echo "no $key"; return 1; }
	done
'
test_expect_success 'defaults are those of flux-config-exec(5)' '
	jq -c "[.[\"kill-timeout\"], .[\"term-signal\"], .[\"kill-signal\"],
		.[\"max-kill-count\"], .config.default_barrier_timeout,
		.config.shell_exit_timeout]" stats >actual &&
	jq -nc "[5, \"SIGTERM\", \"SIGKILL\", 8, 1800, 30]" >expected &&
	jq -s -e ".[0] == .[1]" expected actual
'
test_expect_success 'stats show a running job' '
	id=$(flux submit -N2 -n2 sleep inf) &&
	wait_event "$id" start &&
	stats_of "$id" >job &&
	for key in implementation ns critical_ranks multiuser has_namespace \
		exception_in_progress started running finalizing expiration kill_timeout \
		kill_count kill_shell_count total_shells active_shells active_ranks; do
		jq -e --arg key $key "has(\$key)" job || { echo "no $key"; return 1; }
	done &&
	test "$(jq -c "[.started, .running, .total_shells, .active_shells]" job)" = "[1,1,2,2]" &&
	test "$(jq -r .active_ranks job)" = 0-1 &&
	flux cancel "$id" &&
	wait_event "$id" clean
'

test_expect_success 'rank 0 shows all jobs, whoever leads them' '
	first=$(flux submit --requires=rank:0 sleep inf) &&
	second=$(flux submit --requires=rank:1 sleep inf) &&
	for id in $first $second; do wait_event "$id" start || return 1; done &&
	flux module stats job-exec >all &&
	test "$(jq -c "[.jobs[].active_ranks | select(. != \"\")] | sort" all)" = "[\"0\",\"1\"]" &&
	flux cancel "$first" "$second" &&
	for id in $first $second; do wait_event "$id" clean || return 1; done
'
test_expect_success 'arguments are used' '
	flux module reload job-exec kill-timeout=1m term-signal=SIGUSR1 kill-signal=SIGUSR2 \
		max-kill-count=3 max-kill-timeout=10s job-shell=/no/shell imp=/no/imp \
		shell-exit-timeout=7s &&
	test "$(stat_of ".[\"kill-timeout\"]" | jq ". == 60")" = true &&
	test "$(stat_of ".[\"term-signal\"]")" = \"SIGUSR1\" &&
	test "$(stat_of ".[\"kill-signal\"]")" = \"SIGUSR2\" &&
	test "$(stat_of .config.default_job_shell)" = \"/no/shell\" &&
	test "$(stat_of .config.flux_imp_path)" = \"/no/imp\" &&
	test "$(stat_of .config.shell_exit_timeout | jq ". == 7")" = true
'
all_of_them() {
	stat_of "[.[\"kill-timeout\", \"max-kill-count\", \"max-kill-timeout\", \"term-signal\",
		\"kill-signal\"], .config[\"default_job_shell\", \"flux_imp_path\", \"shell_exit_timeout\"]]" |
		jq -c "map(if type == \"number\" then floor else . end)"
}
test_expect_success 'and win over the configuration' '
	all_of_them >arguments &&
	configure "kill-timeout = \"30s\"" "max-kill-count = 5" "max-kill-timeout = \"20s\"" \
		"term-signal = \"SIGHUP\"" "kill-signal = \"SIGINT\"" "job-shell = \"/a/shell\"" \
		"imp = \"/an/imp\"" "shell-exit-timeout = \"9s\"" &&
	all_of_them >actual &&
	test_cmp arguments actual &&
	flux module reload job-exec &&
	all_of_them >actual &&
	echo "[30,5,20,\"SIGHUP\",\"SIGINT\",\"/a/shell\",\"/an/imp\",9]" >expected &&
	test_cmp expected actual &&
	rm "$FLUX_TEST_CONFIG/exec.toml" &&
	flux config reload &&
	test "$(stat_of ".[\"kill-timeout\"] == 5")" = true
'

# usage: refused ARGUMENT PATTERN
# The module does not load with ARGUMENT, and the error matches PATTERN. It loads without it.
refused() {
	flux dmesg -C
	test_must_fail flux module reload job-exec "$1" 2>err
	local status=$?
	flux dmesg >>err
	flux module reload -f job-exec &&
	test $status -eq 0 &&
	grep -e "$2" err
}
test_expect_success 'a bad argument is refused, and named' '
	refused kill-timeout=foo "invalid kill-timeout: foo" &&
	refused kill-timeout=0 "invalid kill-timeout: 0" &&
	refused kill-signal=SIGFOO "invalid kill-signal: SIGFOO" &&
	refused term-signal=-1 "invalid term-signal: -1" &&
	refused method=foo "unknown exec.method .foo." &&
	refused max-kill-count=x "invalid max-kill-count"
'
test_expect_success OURS 'an unknown argument is refused, and named' '
	refused unknown=1 "unknown.*unknown=1" &&
	refused colour "colour"
'

# The statistics without what is counted meanwhile.
settings() {
	flux module stats job-exec | jq -S "del(.. | .received?, .sent?, .\"checkpoint-age\"?)"
}
# usage: config_refused TOML PATTERN
# The configuration is refused with a text that names key and value, and the old one stays in
# use. (flux-core differs: after a refused signal, for instance, its stats cannot be read.)
config_refused() {
	settings >before
	flux dmesg -C
	echo "$1" >"$FLUX_TEST_CONFIG/exec.toml"
	test_must_fail flux config reload 2>err
	local status=$?
	settings >after
	flux dmesg >>err
	rm "$FLUX_TEST_CONFIG/exec.toml"
	flux config reload &&
	test $status -eq 0 &&
	grep -e "$2" err &&
	if test_have_prereq OURS; then test_cmp before after; fi
}
test_expect_success 'a bad configuration is refused, and the old one stays' '
	config_refused "exec.kill-timeout = \"foo\"" "invalid kill-timeout: foo" &&
	config_refused "exec.kill-timeout = \"0s\"" "invalid kill-timeout: 0s" &&
	config_refused "exec.kill-signal = \"SIGFOO\"" "invalid kill-signal: SIGFOO" &&
	config_refused "exec.method = \"wrong\"" "unknown exec.method .wrong." &&
	config_refused "exec.job-shell = 42" "error reading config value exec.job-shell" &&
	config_refused "exec.max-kill-count = -1" "max-kill-count" &&
	config_refused "exec.barrier-timeout = \"55p\"" "barrier-timeout" &&
	config_refused "exec.shell-exit-timeout = \"soon\"" "shell-exit-timeout" &&
	config_refused "exec.sdexec-properties = 42" "exec.sdexec-properties is not a table" &&
	config_refused "exec.sdexec-properties.MemoryHigh = 42" \
		"exec.sdexec-properties.MemoryHigh is not a string"
'
test_expect_success 'jobs still run' '
	flux run -N2 -n2 true
'
test_expect_success 'an instance does not start with a bad configuration' '
	mkdir bad &&
	echo "exec.kill-timeout = \"foo\"" >bad/exec.toml &&
	test_must_fail run_instance --config "$PWD/bad" 1 true >log 2>&1 &&
	grep "invalid kill-timeout: foo" log
'

# A module that is loaded by hand has the name of its file, and has to register job-exec itself.
test_expect_success OURS 'beside another job-exec it does not load, and says why' '
	cp "$JOB_EXEC_RS_MODULE" "$PWD/job-exec-rs.so" &&
	flux module remove job-exec &&
	flux module load "$(flux config builtin module_path)/job-exec.so" &&
	flux dmesg -C &&
	test_must_fail flux module load "$PWD/job-exec-rs.so" 2>err &&
	flux dmesg >>err &&
	grep "job-exec-rs.*cannot register the service .job-exec." err &&
	flux module list >modules &&
	test_must_fail grep job-exec-rs modules &&
	flux run -n1 true
'
test_expect_success OURS 'in its place it does' '
	flux module remove job-exec &&
	flux exec -r 1 flux module remove job-exec &&
	flux exec -r all flux module load "$PWD/job-exec-rs.so" &&
	flux run -N2 -n2 true &&
	flux module stats job-exec | jq -e .method &&
	flux module stats job-exec-rs | jq -e .method
'
test_expect_success OURS 'its configuration can be changed under that name too' '
	echo "exec.kill-timeout = \"30s\"" >"$FLUX_TEST_CONFIG/exec.toml" &&
	flux config reload &&
	test "$(stat_of ".[\"kill-timeout\"] == 30")" = true &&
	rm "$FLUX_TEST_CONFIG/exec.toml" &&
	flux config reload &&
	test "$(stat_of ".[\"kill-timeout\"] == 5")" = true &&
	flux module reload --name=job-exec-rs "$PWD/job-exec-rs.so"
'
test_expect_success OURS 'and go again' '
	flux exec -r all flux module remove job-exec-rs &&
	flux exec -r all flux module load job-exec &&
	flux run -N2 -n2 true
'
test_expect_success OURS 'a module whose thread is canceled ends, and its broker goes on' '
	id=$(flux submit -N2 -n2 sleep inf) &&
	wait_event "$id" start &&
	flux module remove --cancel job-exec &&
	flux module load job-exec &&
	flux cancel "$id" &&
	wait_event "$id" clean &&
	flux run -N2 -n2 true
'
# usage: by_hand FLUX-START-OPTION... - NAME. An instance in which a module of this name was loaded
# by hand, ran a job, and is left.
by_hand() {
	local options=()
	while [ "$1" != - ]; do options+=("$1") && shift; done
	flux start "${options[@]}" sh -c "
		flux module remove job-exec &&
		flux module load --name=$2 $PWD/job-exec-rs.so &&
		flux run true && touch ran"
}
test_expect_success OURS 'an instance in which it was loaded by hand ends well' '
	by_hand - job-exec-rs 2>err &&
	test_must_fail grep "not properly shut down" err
'
test_expect_success OURS 'an instance in which it was removed, canceled and loaded again ends well' '
	rm -f ran &&
	flux start sh -c "
		load() { flux module load --name=job-exec $PWD/job-exec-rs.so && flux run true; }
		flux module remove job-exec && load &&
		flux module remove job-exec && load &&
		flux module remove --cancel job-exec && load &&
		flux module remove job-exec && touch ran" 2>err &&
	test -e ran &&
	test_must_fail grep "not properly shut down" err
'
test_expect_success OURS 'a broker that cancels the module at its end does not abort' '
	rm -f ran &&
	test_expect_code 1 by_hand -Sbroker.rc3_path= - job-exec 2>err &&
	test -e ran &&
	grep "job-exec. was not properly shut down" err
'
test_expect_success UNITS 'no unit is left' '
	assert_no_units
'

test_done
