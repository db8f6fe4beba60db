#!/bin/bash
test_description='job shells and the resume connector'
instance_size=4
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

if ! test_have_prereq OURS,CONNECTOR; then
	skip_all='needs our module and the connector beside it'
	test_done
fi

# usage: uri_of_tasks [OPTION...]. The FLUX_URI of each task of a job, one per line.
uri_of_tasks() {
	flux run "$@" printenv FLUX_URI | sed 's/:.*//' | sort -u
}

namespace_of() {
	echo "job-$(flux job id --to=dec "$1")"
}

test_expect_success 'stats say that shells use it, on every rank' '
	for rank in 0 1 2 3; do
		flux exec -r $rank flux module stats job-exec >stats &&
		jq -e ".connector == \"resume\" and .[\"connector-notice\"] == null" stats || return 1
	done
'
test_expect_success 'a client that starts while the broker accepts nobody waits' '
	pid=$(flux exec -r 3 flux getattr broker.pid) &&
	uri=$(flux exec -r 3 flux getattr local-uri) &&
	test "$(flux python "$here/ride-busy.py" "$pid" "${uri#local://}")" = 3
'
test_expect_success 'shells and tasks have it, on every rank' '
	test "$(uri_of_tasks -N4 -n8)" = resume
'
test_expect_success 'input, output and status go through it' '
	seq 10000 >input &&
	test_expect_code 3 flux run --input=input bash -c "cat; exit 3" >output &&
	test_cmp input output &&
	seq 10000 | flux run -N2 cat | sort -n >output &&
	seq 10000 | sed p >expected &&
	test_cmp expected output
'
test_expect_success 'flux commands of tasks have it' '
	test "$(flux run -n1 flux getattr rank)" = 0 &&
	test "$(flux run -n1 --requires=rank:2 flux getattr rank)" = 2
'
# Its own shells end with their broker, and the rexec service gives them its broker's own URI.
test_expect_success 'an instance that is a job reaches its parent by it' '
	flux alloc -N2 sh -c "flux getattr parent-uri; flux run -N2 printenv FLUX_URI" >uris &&
	sed "s/:.*//" uris >actual &&
	cat uris &&
	printf "%s\n" resume local local >expected &&
	test_cmp expected actual
'
test_expect_success 'commands in a nested instance reach its parent' '
	mkdir -p python/resolvers && cp "$top/command/src/resume.py" python/resolvers &&
	flux alloc -N1 flux python "$here/parent-uri.py" "$PWD/python" >actual &&
	cat actual &&
	path=$(flux getattr local-uri) && path=${path#local://} &&
	printf "%s\n" "..=local://$path" "..?local=local://$path" "..?remote=ssh://$(hostname)$path" \
		"/=local://$path" proxy=4 parent=4 >expected &&
	test_cmp expected actual
'
test_expect_success 'what it keeps in the guest namespace is gone when the job has ended, and nothing else' '
	gate marked &&
	id=$(flux submit -n1 sh -c \
		"flux kvs put resume-mine=1; echo \$FLUX_URI >uri; echo >marked; sleep inf") &&
	wait_gate marked &&
	flux kvs get -N "$(namespace_of "$id")" resume-run >run &&
	grep "run=$(flux job id --to=dec "$id")-$(cat run)&info=0$" uri &&
	flux cancel "$id" &&
	wait_event -q "$id" clean &&
	flux kvs ls -1 "$(flux job id --to=kvs "$id").guest" >keys &&
	grep exec keys &&
	grep resume keys >kept &&
	echo resume-mine >expected &&
	test_cmp expected kept
'
test_expect_success 'what a client has committed is handed over, even if it exits without closing' '
	gate left &&
	id=$(flux submit -n1 --requires=rank:1 \
		sh -c "flux python $here/left-open.py; echo >left; sleep inf") &&
	wait_gate left &&
	cat "$(state_directory 1)"/shell-1-"$(flux job id --to=f58plain "$id")"*.record | grep commits- &&
	flux cancel "$id" &&
	wait_event -q "$id" clean
'
test_expect_success 'a shell may ask for a checkpoint of its own job' '
	gate asked &&
	id=$(flux submit -n1 sh -c "echo >asked; sleep inf") &&
	wait_gate asked &&
	dec=$(flux job id --to=dec "$id") &&
	if test_have_prereq UNITS; then
		rpc 0 job-exec.checkpoint "{\"id\": $dec}" &&
		flux kvs get --treeobj "$(flux job id --to=kvs "$id").guest-checkpoint"
	else
		test_must_fail rpc 0 job-exec.checkpoint "{\"id\": $dec}" 2>err &&
		grep ENOSYS err
	fi &&
	flux cancel "$id" &&
	wait_event -q "$id" clean
'
test_expect_success 'a guest may not ask for another user'\''s, nobody for one that does not run' '
	gate held &&
	id=$(flux submit -n1 sh -c "echo >held; sleep inf") &&
	wait_gate held &&
	dec=$(flux job id --to=dec "$id") &&
	test_must_fail env FLUX_HANDLE_USERID=9999 FLUX_HANDLE_ROLEMASK=2 \
		flux python "$here/rpc.py" 0 job-exec.checkpoint "{\"id\": $dec}" 2>err &&
	grep EPERM err &&
	test_must_fail rpc 0 job-exec.checkpoint "{\"id\": 1}" 2>err &&
	grep ENOENT err &&
	test_must_fail rpc 0 job-exec.checkpoint "{}" 2>err &&
	grep EPROTO err &&
	flux cancel "$id" &&
	wait_event -q "$id" clean
'
test_expect_success 'without it shells use local://, and it is said once and shown' '
	FLUX_CONNECTOR_PATH=$PWD flux start -s1 --config-path="$FLUX_TEST_CONFIG" sh -c "
		flux module stats job-exec >stats &&
		flux dmesg | grep -c \"no resume connector\" >said &&
		flux run -n1 printenv FLUX_URI >uri" &&
	jq -e ".connector == \"local\"" stats &&
	jq -r ".[\"connector-notice\"]" stats | grep "connector name .resume." &&
	test "$(cat said)" = 1 &&
	grep ^local: uri
'
cat >fatal.lua <<-\EOF
	plugin.register { name = "fatal", handlers = {
	  { topic = "task.exec", fn = function () shell.die ("before its exec") end } } }
EOF
cat >fails <<-EOF
	id=\$(flux submit -n2 -N2 -o initrc=$PWD/fatal.lua true) &&
	flux job wait-event -t $patience "\$id" clean && flux job attach "\$id"
EOF
# The task is a fork of its shell then, which must not look for a broker.
test_expect_success 'a task that fails before its exec fails its job' '
	test_expect_code 1 bash fails >out 2>&1 &&
	grep "before its exec" out
'
test_expect_success 'so it does without the connector' '
	FLUX_CONNECTOR_PATH=$PWD test_expect_code 1 \
		flux start --test-size=2 --config-path="$FLUX_TEST_CONFIG" bash fails >out 2>&1 &&
	grep "before its exec" out
'

test_done
