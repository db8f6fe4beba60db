#!/bin/bash
test_description='requests that make no sense, and requests of those who may not ask'
instance_size=2
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

# usage: refused ERRNO [RANK] TOPIC JSON
refused() {
	local errno=$1
	shift
	test_must_fail rpc "$@" 2>err &&
	grep "^$errno" err
}
# usage: refused_or_excepted JSON
# Sends a bad start request. The answer is an error, or a stream of responses that begins with an
# exception of severity 0.
refused_or_excepted() {
	if rpc job-exec.start "$1" >out 2>err; then
		jq -e '.type == "exception" and .data.severity == 0' out
	else
		cat err && grep "^E" err
	fi
}
as_guest() {
	FLUX_HANDLE_USERID=42 FLUX_HANDLE_ROLEMASK=0x2 "$@"
}
still_works() {
	flux run -N2 -n2 true
}

test_expect_success 'a start request without content' '
	refused EPROTO job-exec.start "{}" &&
	still_works
'
test_expect_success 'a start request with one thing missing' '
	refused_or_excepted "{\"id\": 1}" &&
	refused_or_excepted \
		"{\"id\": 1, \"userid\": 0, \"jobspec\": {}, \"reattach\": false}" &&
	still_works
'
test_expect_success 'a start request with things of the wrong type' '
	refused EPROTO job-exec.start \
		"{\"id\": \"x\", \"userid\": 0, \"jobspec\": {}, \"reattach\": false, \"R\": {}}" &&
	still_works
'
# flux-core answers this request with an error that says "Success".
test_expect_success OURS 'and in places where upstream does not look' '
	refused_or_excepted \
		"{\"id\": 1, \"userid\": 0, \"jobspec\": [], \"reattach\": false, \"R\": {}}" &&
	refused_or_excepted \
		"{\"id\": 1, \"userid\": 0, \"jobspec\": {}, \"reattach\": false, \"R\": 7}" &&
	still_works
'
test_expect_success 'a start request with an R that is none' '
	id=$((RANDOM + 1)) &&
	refused_or_excepted "{\"id\": $id, \"userid\": $(id -u), \"reattach\": false,
		\"jobspec\": $(flux run --dry-run true), \"R\": {\"version\": 7}}" &&
	still_works
'
test_expect_success 'the shell barrier of a job that is not there' '
	refused ENOENT job-exec.shell-barrier "{\"id\": 1234, \"rank\": 0}" &&
	still_works
'
test_expect_success 'critical ranks of a job that is not there' '
	refused ENOENT job-exec.critical-ranks "{\"id\": 1234, \"ranks\": \"0\"}" &&
	still_works
'
test_expect_success 'an expiration for a job that is not there' '
	refused ENOENT job-exec.expiration "{\"id\": 1234, \"expiration\": 100.0}" &&
	still_works
'
test_expect_success 'the same without content' '
	for topic in shell-barrier critical-ranks expiration; do
		refused EPROTO job-exec.$topic "{}" || return 1
	done &&
	still_works
'
test_expect_success 'asked on another rank' '
	test_must_fail flux exec -r 1 flux python "$here/rpc.py" job-exec.critical-ranks \
		"{\"id\": 1234, \"ranks\": \"0\"}" 2>err &&
	grep ENOENT err &&
	still_works
'
test_expect_success OURS 'passed on to another rank, because the module is not loaded there' '
	flux exec -r 1 flux module remove job-exec &&
	test_must_fail flux exec -r 1 flux python "$here/rpc.py" job-exec.critical-ranks \
		"{\"id\": 1234, \"ranks\": \"0\"}" 2>err &&
	flux exec -r 1 flux module load job-exec &&
	grep ENOSYS err &&
	still_works
'
test_expect_success 'a method that does not exist' '
	refused ENOSYS job-exec.colour "{}" &&
	still_works
'
test_expect_success OURS 'messages of the modules among themselves, without content' '
	for rank in 0 1; do
		refused EPROTO $rank job-exec.lead "{}" &&
		refused EPROTO $rank job-exec.shells "{}" &&
		rpc --no-response $rank job-exec.order "{}" || return 1
	done &&
	still_works
'
test_expect_success OURS 'and of another release of it' '
	for rank in 0 1; do
		refused E $rank job-exec.lead "{\"version\": 999}" &&
		refused E $rank job-exec.shells "{\"version\": 999}" &&
		rpc --no-response $rank job-exec.order "{\"version\": 999}" || return 1
	done &&
	still_works
'

test_expect_success OURS 'a job on a rank that the instance lacks fails at once, and drains nothing' '
	flux jobtap load alloc-bypass.so &&
	r=$(flux R encode -r 0,70-79 -c 0 -H "n[0-10]") &&
	id=$(flux submit --setattr=alloc-bypass.R="$r" true) &&
	wait_event "$id" clean &&
	contexts "$id" exception | grep "ranks 70-79 do not exist" &&
	test "$(contexts "$id" exception | wc -l)" = 1 &&
	test "$(flux resource drain -no "{ranks}")" = ""
'
test_expect_success 'start a job to ask about' '
	id=$(flux submit -N2 -n2 sleep inf) &&
	wait_event "$id" start &&
	wait_event -p exec "$id" shell.start &&
	decimal=$(flux job id --to=dec "$id")
'
test_expect_success 'critical ranks can be set, and seen' '
	rpc job-exec.critical-ranks "{\"id\": $decimal, \"ranks\": \"0\"}" &&
	test "$(stats_of "$id" | jq -r .critical_ranks)" = 0
'
test_expect_success 'critical ranks that are no idset' '
	test_must_fail rpc job-exec.critical-ranks "{\"id\": $decimal, \"ranks\": \"zero\"}" &&
	test "$(stats_of "$id" | jq -r .critical_ranks)" = 0
'
test_expect_success 'a guest may neither start nor prolong a job' '
	as_guest refused EPERM job-exec.start "{}" &&
	as_guest refused EPERM job-exec.expiration "{\"id\": $decimal, \"expiration\": 100.0}"
'
test_expect_success 'a guest may not change what another user owns' '
	as_guest refused EPERM job-exec.critical-ranks "{\"id\": $decimal, \"ranks\": \"1\"}" &&
	as_guest refused EPERM job-exec.shell-barrier "{\"id\": $decimal, \"rank\": 0}" &&
	test "$(stats_of "$id" | jq -r .critical_ranks)" = 0
'
test_expect_success OURS 'a guest cannot speak to the modules in their own name' '
	for topic in lead shells order; do
		as_guest refused EPERM job-exec.$topic "{}" || return 1
	done
'
test_expect_success 'the job is none the worse for it' '
	test "$(flux jobs -no "{state}" "$id")" = RUN &&
	flux cancel "$id" &&
	wait_event "$id" clean &&
	test_expect_code 143 flux job status "$id"
'
test_expect_success UNITS 'no unit is left' '
	assert_no_units
'

test_done
