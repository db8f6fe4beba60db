#!/bin/bash
test_description='jobs on one rank: status, output, eventlogs'
instance_size=1
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

test_expect_success 'a job that succeeds' '
	flux run true
'
test_expect_success 'a job that fails' '
	test_expect_code 1 flux run false
'
test_expect_success 'an exit code arrives as it is' '
	test_expect_code 3 flux run bash -c "exit 3"
'
test_expect_success 'a task that a signal ended' '
	test_expect_code 137 flux run bash -c "kill -KILL \$\$"
'
test_expect_success 'the largest status of several tasks counts' '
	test_expect_code 3 flux run -n4 bash -c "exit \$FLUX_TASK_RANK"
'
test_expect_success 'output is kept, each stream by itself' '
	id=$(flux submit bash -c "echo to stdout; echo to stderr >&2") &&
	flux job attach "$id" >out 2>err &&
	echo to stdout >out.expected &&
	echo to stderr >err.expected &&
	test_cmp out.expected out &&
	test_cmp err.expected err
'
test_expect_success 'much output arrives whole and in order' '
	flux run seq 20000 >out &&
	seq 20000 >out.expected &&
	test_cmp out.expected out
'
test_expect_success 'input reaches the task' '
	echo to stdin >in &&
	flux run cat <in >out &&
	test_cmp in out
'
test_expect_success 'the job has the events of RFC 21 and no others' '
	id=$(flux submit true) &&
	wait_event "$id" clean &&
	job_events "$id" >events &&
	cat >events.expected <<-EOF &&
	submit
	validate
	depend
	priority
	alloc
	start
	finish
	release
	free
	clean
	EOF
	test_cmp events.expected events
'
test_expect_success 'everything is released at once' '
	test "$(contexts "$id" release)" = "{\"final\":true,\"ranks\":\"all\"}"
'
# RFC 50 has recoverable posted only where the job could be found again; flux-core's bulk-exec cannot.
cat >exec-events.expected <<-EOF
	init
	starting
	shell.init
	shell.start
	shell.task-exit
	shell-exit
	complete
	done
EOF
test_expect_success 'the exec eventlog has the events of RFC 50' '
	exec_events "$id" | grep -v -e recoverable -e debug.timeline >exec-events &&
	sort exec-events.expected >expected &&
	sort exec-events >actual &&
	test_cmp expected actual
'
# flux-core may post starting after the shell has posted shell.init.
test_expect_success OURS 'and in their order' '
	test_cmp exec-events.expected exec-events
'
test_expect_success 'the exec eventlog of a failed job has its status' '
	id=$(flux submit false) &&
	wait_event "$id" clean &&
	test "$(contexts -p exec "$id" complete)" = "{\"status\":256}" &&
	test "$(contexts -p exec "$id" shell-exit)" = "{\"rank\":0,\"wait_status\":256}"
'
test_expect_success 'the guest namespace is moved into the primary one' '
	directory=$(flux job id --to=kvs "$id").guest &&
	flux kvs get "$directory.exec.eventlog" &&
	test_must_fail flux kvs readlink "$directory" &&
	flux kvs namespace list >namespaces &&
	test_must_fail grep "^job-" namespaces
'
test_expect_success 'a job sees its environment and directory' '
	mkdir -p elsewhere &&
	flux run --env=COLOUR=green --cwd="$PWD/elsewhere" \
		bash -c "echo \$COLOUR; pwd; echo \$FLUX_JOB_NNODES" >out &&
	printf "green\n%s\n1\n" "$PWD/elsewhere" >out.expected &&
	test_cmp out.expected out
'

test_done
