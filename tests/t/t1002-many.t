#!/bin/bash
test_description='many jobs at a time'
instance_size=4
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

no_jobs_in_stats() {
	flux module stats job-exec | jq -e '.jobs == {}'
}

test_expect_success 'a hundred jobs run and succeed' '
	flux submit --quiet --wait --cc=1-100 -n1 true &&
	flux jobs -ano "{result}" | sort | uniq -c >results &&
	echo 100 COMPLETED >expected &&
	awk "{print \$1, \$2}" results >actual &&
	test_cmp expected actual
'
test_expect_success 'jobs of four ranks, many at a time' '
	flux submit --quiet --wait --cc=1-20 -N4 -n4 true &&
	flux jobs -ano "{result}" | sort -u >actual &&
	echo COMPLETED >expected &&
	test_cmp expected actual
'
test_expect_success 'the failures among many are the right ones' '
	flux submit --cc=0-19 -n1 bash -c "exit \$((FLUX_JOB_CC % 2))" >ids &&
	flux queue drain &&
	flux jobs -no "{returncode}" $(cat ids) | sort | uniq -c |
		awk "{print \$1, \$2}" >actual &&
	printf "%s\n" "10 0" "10 1" >expected &&
	test_cmp expected actual
'
test_expect_success 'output of many is not mixed up' '
	flux submit --quiet --wait --cc=1-20 -n1 --output="$PWD/out.{{id}}" \
		bash -c "echo \$FLUX_JOB_ID; seq 100; echo \$FLUX_JOB_ID" &&
	for file in out.*; do
		id=$(head -n 1 "$file") &&
		{ echo "$id" && seq 100 && echo "$id"; } >expected &&
		test_cmp expected "$file" || return 1
	done &&
	test "$(cat out.* | wc -l)" -eq 2040
'
test_expect_success 'nothing runs any more' '
	flux jobs -no "{id}" >actual &&
	test_must_be_empty actual &&
	await no_jobs_in_stats &&
	test "$(flux resource list -s allocated -no {nnodes})" = 0
'
test_expect_success 'no guest namespace is left' '
	flux kvs namespace list >namespaces &&
	test_must_fail grep "^job-" namespaces
'
test_expect_success UNITS 'no unit is left' '
	assert_no_units
'

test_done
