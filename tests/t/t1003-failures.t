#!/bin/bash
test_description='jobs that cannot be started, and what their owners read'
instance_size=4
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

# usage: fails_before_start JOBID. Checks the end of a job that has not started.
fails_before_start() {
	wait_event "$1" clean &&
	job_events "$1" >events &&
	test_must_fail grep -x start events &&
	grep -x exception events &&
	test "$(contexts "$1" release)" = '{"final":true,"ranks":"all"}'
}
note() {
	contexts "$1" exception | jq -r .note
}

test_expect_success 'a command that is not there' '
	test_expect_code 127 flux run /nosuch/command 2>err &&
	grep /nosuch/command err
'
test_expect_success 'a command that may not be executed' '
	touch plain-file &&
	test_expect_code 126 flux run ./plain-file 2>err &&
	grep "Permission denied" err
'
test_expect_success 'a directory that is not there' '
	flux run --cwd=/nosuch/directory true 2>err &&
	grep /nosuch/directory err
'
test_expect_success 'a job shell that is not there' '
	id=$(flux submit --setattr=system.exec.job_shell=/nosuch/shell true) &&
	fails_before_start "$id" &&
	note "$id" >note &&
	grep "No such file" note
'
test_expect_success OURS 'the exception names it' '
	grep /nosuch/shell note
'
# usage: logged_id [NAME=VALUE]. An instance of its own, with this in its environment, logs the id of
# a job as its flux(1) shows it.
logged_id() {
	env LC_ALL=C.UTF-8 "$@" flux start -s1 --config-path="$FLUX_TEST_CONFIG" sh -c '
		id=$(flux submit --setattr=system.exec.job_shell=/nosuch/shell true) &&
		flux job wait-event "$id" clean &&
		flux job id --to=f58 "$id" >id && flux dmesg >log
	' &&
	grep "job-exec.*id=$(cat id):" log
}
test_expect_success 'the log has the id as flux shows it' '
	logged_id && grep "^ƒ" id
'
test_expect_success 'also in ASCII' '
	logged_id FLUX_F58_FORCE_ASCII=1 && grep "^f" id
'
test_expect_success 'a job shell that is not there, on several ranks' '
	id=$(flux submit -N4 --setattr=system.exec.job_shell=/nosuch/shell true) &&
	fails_before_start "$id"
'
test_expect_success 'what a shell says before it fails is kept' '
	cat >early-failure <<-\EOF &&
	#!/bin/sh
	echo "this shell will not start today" >&2
	exit 1
	EOF
	chmod +x early-failure &&
	id=$(flux submit --setattr=system.exec.job_shell="$PWD/early-failure" true) &&
	wait_event "$id" clean &&
	contexts -p exec "$id" log >log &&
	grep "this shell will not start today" log &&
	test "$(jq -r .stream log)" = stderr &&
	test "$(contexts "$id" finish)" = "{\"status\":256}"
'
test_expect_success 'and shown to who attaches' '
	test_expect_code 1 flux job attach "$id" 2>err &&
	grep "early-failure.*this shell will not start today" err
'
# None ends before all have spoken: the first end would have the others killed.
test_expect_success 'several ranks that fail early are each heard' '
	gate spoke.0 spoke.1 spoke.2 spoke.3 fail &&
	exec 8<>fail &&
	test_when_finished "exec 8>&-" &&
	cat >speaks-and-fails <<-EOF &&
	#!/bin/sh
	echo "this shell will not start today" >&2
	echo >"$PWD/spoke.\$(flux getattr rank)"
	read -r line <"$PWD/fail"
	exit 1
	EOF
	chmod +x speaks-and-fails &&
	id=$(flux submit -N4 --setattr=system.exec.job_shell="$PWD/speaks-and-fails" true) &&
	wait_gate spoke.0 spoke.1 spoke.2 spoke.3 &&
	printf "\n\n\n\n" >&8 &&
	wait_event "$id" clean &&
	contexts -p exec "$id" log >log &&
	test "$(grep "this shell will not start" log | jq -r .rank | sort -u | xargs)" = "0 1 2 3" &&
	contexts "$id" exception | jq -r .type >type &&
	grep -x exec type
'
test_expect_success 'a shell that a signal ended' '
	id=$(dummy_submit "kill -KILL \$\$") &&
	wait_event "$id" clean &&
	test_expect_code 137 flux job status "$id"
'
test_expect_success 'a key of system.exec.bulkexec that does not exist' '
	flux dmesg -C &&
	id=$(flux submit --setattr=system.exec.bulkexec.colour=green true) &&
	fails_before_start "$id" &&
	flux dmesg >dmesg &&
	grep "failed to unpack system.exec.bulkexec.*colour" dmesg
'
test_expect_success OURS 'the exception names it' '
	note "$id" | grep colour
'
test_expect_success 'its exec eventlog is there, as that of any other' '
	exec_events "$id" >events &&
	printf "init\ndone\n" >expected &&
	test_cmp expected events
'
test_expect_success 'jobs fail on purpose: mock exceptions' '
	for where in init starting; do
		id=$(flux submit -N2 --setattr=system.exec.bulkexec.mock_exception=$where true) &&
		wait_event "$id" clean &&
		! flux job status "$id" &&
		note "$id" | grep "mock .*exception" || return 1
	done
'
test_expect_success 'jobs run after all that' '
	flux run -N4 -n4 true
'

test_done
