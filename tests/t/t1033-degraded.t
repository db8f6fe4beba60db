#!/bin/bash
test_description='prologs that mark their nodes, and jobs that tolerate it'
instance_size=4
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

if ! test_have_prereq UNITS; then
	skip_all='needs our module and a user systemd'
	test_done
fi
program=$(dirname "$JOB_EXEC_RS_MODULE")/job-exec-rs

# A prolog marks its node for each line of the file bad-RANK.
here_now=$PWD
cat >prolog <<-EOF
	#!/bin/bash
	cd "$here_now" || exit
	rank=\$(flux getattr rank)
	[ -e bad-\$rank ] || exit 0
	while read -r reason; do
		"$program" degraded --reason "\$reason" || exit 1
	done <bad-\$rank
	echo marked >>marks
	[ -e gate-\$rank ] && { echo >here-\$rank; cat gate-\$rank; }
	[ -e fail-\$rank ] && exit 3
	exit 0
EOF
chmod +x prolog

# usage: bad RANK=REASON...
bad() {
	local each drained
	drained=$(flux resource drain -no '{ranks}' | paste -sd,)
	[ -z "$drained" ] || flux resource undrain "$drained"
	rm -f bad-* gate-* here-* fail-* marks
	for each; do echo "${each#*=}" >>"bad-${each%%=*}"; done
}
# usage: tolerate COUNT. At most so many by configuration.
tolerate() {
	configure '[exec.perilog]' 'enable = true' "max-tolerance = $1" \
		'[job-manager.prolog]' "command = ['$PWD/prolog']" 'per-rank = true'
}
drained() {
	flux resource drain -no '{ranks} {reason}'
}
exceptions() {
	contexts "$1" exception | jq -r '"\(.severity) \(.type) \(.note)"'
}

test_expect_success 'a job that tolerates nothing fails, and its degraded node is drained' '
	tolerate 2 &&
	flux exec -r all flux module reload job-exec &&
	bad 2="no scratch" &&
	id=$(flux submit -N4 touch task) &&
	wait_event "$id" clean &&
	exceptions "$id" >said &&
	grep "^0 prolog prolog: degraded nodes .* (rank 2): .*: no scratch; the job tolerates 0" said &&
	grep "system.exec.prolog-tolerance=0, exec.perilog.max-tolerance=2" said &&
	test_must_fail test -e task &&
	drained | grep "^2 degraded for job .*: no scratch"
'
test_expect_success 'one that tolerates it starts on all nodes, and is told first' '
	bad 2="no scratch" 2="slow network" &&
	id=$(flux submit -N4 --setattr=exec.prolog-tolerance=1 true) &&
	wait_event "$id" clean &&
	flux job status "$id" &&
	contexts "$id" node-degraded | tee told | jq -e ".ranks == \"2\" and .shell_ranks == \"2\"" &&
	jq -e ".nodelist == \"fake2\" and .reasons == [\"no scratch; slow network\"]" told &&
	exceptions "$id" | grep "^2 prolog .* (rank 2): .*: no scratch; slow network" &&
	job_events "$id" | grep -x -A99 node-degraded | grep -x start &&
	drained | grep "^2 degraded for job .*: no scratch; slow network"
'
test_expect_success 'it may not tolerate more than is configured' '
	tolerate 1 &&
	bad 2="no scratch" 3="hot" &&
	id=$(flux submit -N4 --setattr=exec.prolog-tolerance=10 true) &&
	wait_event "$id" clean &&
	exceptions "$id" | tee said | grep "^0 prolog .* (rank 2-3): .*: no scratch, .*: hot" &&
	grep "tolerates 1 (system.exec.prolog-tolerance=10, exec.perilog.max-tolerance=1)" said
'
test_expect_success 'its first node has to be well' '
	bad 0="no scratch" &&
	id=$(flux submit -N4 --setattr=exec.prolog-tolerance=1 true) &&
	wait_event "$id" clean &&
	exceptions "$id" | grep "^0 prolog .* (rank 0): .*first node is never tolerated"
'
test_expect_success 'a prolog that fails is fatal all the same' '
	bad 1="no scratch" &&
	touch fail-1 &&
	id=$(flux submit -N4 --setattr=exec.prolog-tolerance=1 true) &&
	wait_event "$id" clean &&
	exceptions "$id" | grep "^0 prolog prolog exited with code=3 on .* (rank 1)" &&
	drained | grep "^1 prolog failed for job "
'
test_expect_success 'a tolerance that is no number is refused, and named' '
	bad &&
	id=$(flux submit --setattr=exec.prolog-tolerance=some true) &&
	wait_event "$id" clean &&
	exceptions "$id" | grep "system.exec.prolog-tolerance: expected a number of nodes, 0 or more, got \"some\""
'
test_expect_success 'a mark outlives the modules' '
	bad 3="no scratch" &&
	gate gate-3 here-3 &&
	id=$(flux submit -N4 --setattr=exec.prolog-tolerance=1 true) &&
	wait_gate here-3 &&
	marked="{\"id\": $(flux job id --to=dec "$id"), \"reason\": \"a\\nb\"}" &&
	test_must_fail rpc 3 job-exec.degraded "$marked" 2>err &&
	grep "EINVAL.*expected one line of text" err &&
	flux exec flux module reload job-exec &&
	open_gate gate-3 &&
	wait_event "$id" clean &&
	flux job status "$id" &&
	test "$(wc -l <marks)" = 1 &&
	contexts "$id" node-degraded | jq -e ".ranks == \"3\"" &&
	test "$(contexts "$id" node-degraded | wc -l)" = 1
'
test_expect_success 'a prolog can mark its node while the module is being loaded again' '
	bad 3="no scratch" &&
	gate here away &&
	test_when_finished "cp prolog.kept prolog" &&
	cp prolog prolog.kept &&
	sed "s,^rank=.*,&; [ \$rank = 3 ] \&\& cat here away," prolog.kept >prolog &&
	id=$(flux submit -N4 --setattr=exec.prolog-tolerance=1 true) &&
	open_gate here &&
	flux exec -r 3 flux module remove job-exec &&
	open_gate away &&
	flux exec -r 3 flux module load job-exec &&
	wait_event "$id" clean &&
	flux job status "$id" &&
	contexts "$id" node-degraded | jq -e ".ranks == \"3\""
'
test_expect_success 'a prolog that is a child of its broker is answered as well' '
	bad 2="no scratch" 2="slow network" &&
	id=$(flux submit -N4 --setattr=exec.method=fork --setattr=exec.prolog-tolerance=1 true) &&
	wait_event "$id" clean &&
	flux job status "$id" &&
	contexts "$id" node-degraded | jq -e ".reasons == [\"no scratch; slow network\"]" &&
	drained | grep "^2 degraded for job .*: no scratch; slow network"
'
test_expect_success 'so is it where no rank has units' '
	bad 2="no scratch" &&
	await no_records 0 1 2 3 &&
	flux exec -r all flux module reload job-exec method=fork &&
	test_when_finished "flux exec -r all flux module reload job-exec" &&
	flux module stats job-exec | jq -e ".launcher == \"fork\"" &&
	id=$(flux submit -N4 --setattr=exec.prolog-tolerance=1 true) &&
	wait_event "$id" clean &&
	flux job status "$id" &&
	contexts "$id" node-degraded | jq -e ".reasons == [\"no scratch\"]" &&
	drained | grep "^2 degraded for job .*: no scratch" &&
	bad 2="no scratch" &&
	id=$(flux submit -N4 true) &&
	wait_event "$id" clean &&
	exceptions "$id" | grep "^0 prolog prolog: degraded nodes .* (rank 2)"
'
test_expect_success 'an instance has drained them before its initial program starts' '
	bad 2="no scratch" &&
	flux alloc -N4 --setattr=exec.prolog-tolerance=1 \
		flux resource drain -no "{ranks} {reason}" >seen &&
	test "$(cat seen)" = "2 no scratch"
'
test_expect_success 'also where it has several brokers on a node' '
	bad 2="no scratch" &&
	flux submit -N4 --tasks-per-node=2 --setattr=exec.prolog-tolerance=1 --output=seen --watch \
		flux broker flux resource drain -no "{ranks} {reason}" &&
	test "$(grep -v "^\$" seen)" = "4-5 no scratch"
'
test_expect_success 'guests, and those who run no prolog, mark nothing' '
	bad &&
	id=$(flux submit sleep inf) &&
	wait_event "$id" start &&
	decimal=$(flux job id --to=dec "$id") &&
	export FLUX_HANDLE_ROLEMASK=0x2 FLUX_HANDLE_USERID=9999 &&
	test_must_fail rpc job-exec.degraded "{\"id\": $decimal, \"reason\": \"x\"}" 2>err &&
	unset FLUX_HANDLE_ROLEMASK FLUX_HANDLE_USERID &&
	grep "EPERM.*only its prolog" err &&
	test_must_fail "$program" degraded --reason x "$id" 2>err &&
	grep "no prolog of the job runs on this rank" err &&
	flux cancel "$id" &&
	test -z "$(drained)"
'
test_done
