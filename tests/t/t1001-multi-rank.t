#!/bin/bash
test_description='jobs on several ranks: placement, start barrier, release rank by rank'
instance_size=4
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

test_expect_success 'every task of a job on all ranks runs' '
	flux run -N4 -n8 hostname >out &&
	test "$(wc -l <out)" -eq 8
'
test_expect_success 'each rank runs its own tasks' '
	flux run -N4 -n8 bash -c "echo \$(flux getattr rank) \$FLUX_TASK_RANK" >out &&
	sort out >actual &&
	printf "%s\n" "0 0" "0 1" "1 2" "1 3" "2 4" "2 5" "3 6" "3 7" >expected &&
	test_cmp expected actual
'
test_expect_success 'a job need not be on rank 0' '
	id=$(flux submit -N2 -n2 --requires=rank:2-3 \
		bash -c "echo \$FLUX_TASK_RANK on \$(flux getattr rank)") &&
	flux job attach "$id" | sort >actual &&
	printf "%s\n" "0 on 2" "1 on 3" >expected &&
	test_cmp expected actual
'
test_expect_success 'the exec eventlog of a job on several ranks' '
	exec_events "$id" | grep -v -e recoverable -e debug.timeline | sort >actual &&
	printf "%s\n" complete done init shell-exit shell.init shell.start \
		shell.task-exit starting >expected &&
	sort -u actual >unique &&
	test_cmp expected unique &&
	# It has active_ranks, too, if the other shell has not ended yet.
	contexts -p exec "$id" shell-exit | jq -c "[.rank, .wait_status]" >exit &&
	test "$(cat exit)" = "[2,0]"
'
test_expect_success 'a job of one rank runs on each rank' '
	for rank in 0 1 2 3; do
		flux run -n1 --requires=rank:$rank flux getattr rank || return 1
	done >out &&
	seq 0 3 >expected &&
	test_cmp expected out
'
test_expect_success 'the largest status of all ranks counts' '
	test_expect_code 3 flux run -N4 -n4 bash -c "exit \$FLUX_TASK_RANK" &&
	test "$(contexts "$(flux job last)" finish)" = "{\"status\":768}"
'
test_expect_success 'tasks of all ranks share a PMI barrier' '
	flux run -N4 -n4 flux pmi barrier
'
test_expect_success 'no shell gets past the barrier before every shell is there' '
	gate there.3 &&
	id=$(dummy_submit -N4 "early:
		[ \$rank = 3 ] && cat there.3
		flux python $here/barrier.py \$id \$rank && touch passed.\$rank") &&
	wait_event "$id" start &&
	test_must_fail ls passed.* &&
	open_gate there.3 &&
	wait_event "$id" clean &&
	test "$(contexts "$id" finish)" = "{\"status\":0}" &&
	ls passed.0 passed.1 passed.2 passed.3
'
test_expect_success 'a shell that ends before the first barrier takes the job with it' '
	id=$(dummy_submit -N4 "early:
		[ \$rank = 3 ] && exit 0
		flux python $here/barrier.py \$id \$rank") &&
	wait_event "$id" clean &&
	contexts "$id" exception >exception &&
	grep "rank.* 3.*terminated before first barrier" exception &&
	! flux job status "$id"
'

# The shells end one after the other, not in the order of ranks. The leader shell is the last,
# because exec.shell-exit-timeout ends shells that outlive it.
test_expect_success 'start a job whose shells end when they are told to' '
	gate end.0 end.1 end.2 end.3 &&
	staged=$(dummy_submit -N4 "cat end.\$rank; exit \$rank") &&
	wait_event "$staged" start
'
test_expect_success OURS 'a rank is released when its shell has ended' '
	open_gate end.1 &&
	wait_event -m ranks=1 "$staged" release
'
test_expect_success OURS 'the next one too' '
	open_gate end.3 &&
	wait_event -m ranks=3 "$staged" release
'
# RFC 32 defines partial releases; flux-core 0.88.0 posts the event, and frees all ranks at the end.
test_expect_success OURS 'the job goes on on the others' '
	test "$(flux jobs -no "{state}" "$staged")" = RUN
'
test_expect_success !OURS 'upstream releases all ranks at once' '
	open_gate end.1 end.3
'
test_expect_success 'the job ends with its last shell, and the largest status' '
	open_gate end.2 end.0 &&
	wait_event "$staged" clean &&
	test "$(contexts "$staged" finish)" = "{\"status\":768}"
'
test_expect_success OURS 'every rank was released once, the last response being final' '
	contexts "$staged" release >releases &&
	jq -r .ranks releases | expand_idsets | sort >actual &&
	seq 0 3 >expected &&
	test_cmp expected actual &&
	jq .final releases | tail -n 1 >last &&
	test "$(cat last)" = true &&
	test "$(jq .final releases | grep -c true)" -eq 1
'
test_expect_success 'nothing is left allocated' '
	test "$(flux resource list -s allocated -no {nnodes})" = 0
'

test_done
