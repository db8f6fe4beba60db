#!/bin/bash
test_description='what users and administrators read when jobs end badly: exceptions, drains, signals'
instance_size=4
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

# Host and rank as exceptions name them. Upstream says "ranks" for one, too.
on_3='[^ ]+ \(ranks? 3\)'

# Type, severity and note of the exceptions in an eventlog.
summary='select(.name == "exception").context | "\(.type) \(.severity) \(.note)"'

# usage: has_exception JOBID PATTERN. The whole of its first exception matches.
has_exception() {
	flux job eventlog -f json "$1" | jq -r "$summary" | head -n 1 >exception &&
		cat exception && grep -Ex -e "$2" exception
}
finish() {
	contexts "$1" finish | jq .status
}
drained() {
	flux resource drain -no '{ranks} {reason}' | sed 's/ƒ/f/'
}
# usage: drained_for JOBID RANKS REASON. These ranks are drained, with %s in REASON the job.
drained_for() {
	# shellcheck disable=SC2059 # REASON is a format
	printf "$2 $3\n" "$(flux job id --to=f58plain "$1")" >expected &&
		drained >actual && test_cmp expected actual && flux resource undrain "$2"
}
# usage: raise JOBID [WAIT-STATUS]. Raises a fatal exception.
raise() {
	rpc job-manager.raise "{\"id\": $(flux job id --to=dec "$1"), \"type\": \"test\",
		\"severity\": 0 ${2:+, \"wait_status\": $2}}"
}
ready() {
	wait_gate "$@" >/dev/null
}
# usage: let_go GATE... Opens them for shells that wait there, and for none: this service soon ends
# those of a job that is over, which open_gate would wait for.
let_go() {
	local name
	for name; do : <>"$name" || return 1; done
}

# ---- the start barrier -------------------------------------------------------------------

test_expect_success 'a barrier that takes too long: the ranks that are missing are named and drained' '
	gate never &&
	id=$(dummy_submit -N4 -n4 --setattr=system.exec.bulkexec.barrier-timeout=0.5 "early:
		[ \$rank = 0 ] || exec cat never
		exec flux python $here/barrier.py \$id \$rank") &&
	wait_event "$id" clean &&
	has_exception "$id" "exec 0 start barrier timeout waiting for 3/4 nodes \(ranks 1-3\)" &&
	drained_for "$id" 1-3 "job %s start timeout: possible node hang"
'
test_expect_success 'a rank that somebody has drained before keeps its reason, and the others are drained' '
	gate begin &&
	id=$(dummy_submit -N4 -n4 --setattr=system.exec.bulkexec.barrier-timeout=0.1 "early:
		[ \$rank = 0 ] || exec cat never
		cat begin
		exec flux python $here/barrier.py \$id \$rank") &&
	wait_event "$id" start &&
	flux resource drain 2 mine &&
	open_gate begin &&
	wait_event "$id" clean &&
	drained >actual &&
	flux resource undrain 1-3 &&
	grep -x "2 mine" actual &&
	grep -x "1,3 job .* start timeout: possible node hang" actual
'
test_expect_success 'an exit before the first barrier: it is named, others get EIO, nobody is drained' '
	gate up.0 up.1 up.2 &&
	id=$(dummy_submit -N4 -n4 "early:
		[ \$rank = 3 ] && { cat up.0 up.1 up.2; exit 0; }
		trap \"\" TERM
		echo >up.\$rank
		flux python $here/barrier.py \$id \$rank 2>barrier.\$rank") &&
	wait_event "$id" clean &&
	has_exception "$id" "exec 0 $on_3 terminated before first barrier" &&
	for rank in 0 1 2; do
		grep "Errno 5" barrier.$rank || return 1
	done &&
	test -z "$(drained)"
'

# ---- shells that end -----------------------------------------------------------------------

test_expect_success 'a shell that cannot be executed: its rank is named, and why' '
	id=$(flux submit -n1 --requires=rank:3 --setattr=system.exec.job_shell=/nosuch/shell true) &&
	wait_event "$id" clean &&
	has_exception "$id" "exec 0 job shell exec error on broker $on_3: .*No such file.*"
'
test_expect_success 'the leader shell is killed: the job ends, and says by which signal' '
	gate never.1 &&
	id=$(dummy_submit -N2 -n2 "[ \$rank = 0 ] && kill -HUP \$\$; exec cat never.1") &&
	wait_event "$id" clean &&
	has_exception "$id" "exec 0 shell rank 0 \(on [^ ]+\): Hangup"
'
test_expect_success 'a shell is killed that the job can do without: the job is told, and goes on' '
	gate go.1 go.2 go.3 &&
	id=$(dummy_submit -N3 -n3 --requires=rank:1-3 "
		cat go.\$rank; [ \$rank = 2 ] && kill -KILL \$\$; exit 3") &&
	wait_event "$id" start &&
	flux exec -r 1 flux python "$here/rpc.py" job-exec.critical-ranks \
		"{\"id\": $(flux job id --to=dec "$id"), \"ranks\": \"0,2\"}" &&
	open_gate go.2 &&
	wait_event "$id" exception &&
	has_exception "$id" "node-failure 2 shell rank 1 \(on [^ ]+\): Killed" &&
	test "$(flux jobs -no "{state}" "$id")" = RUN &&
	open_gate go.1 go.3 &&
	wait_event "$id" clean &&
	test "$(finish "$id")" = 768
'
test_expect_success 'its leader shell does not wait for one that is lost' '
	gate shell.1 end &&
	id=$(flux submit -N2 -n2 -o exit-timeout=none --requires=rank:0,3 sh -c "
		[ \$FLUX_TASK_RANK = 0 ] && exec cat end; echo \$PPID >shell.1; exec sleep inf") &&
	wait_gate shell.1 >pid &&
	wait_event "$id" start &&
	rpc 0 job-exec.critical-ranks "{\"id\": $(flux job id --to=dec "$id"), \"ranks\": \"0\"}" &&
	kill -KILL $(cat pid) &&
	wait_event "$id" exception &&
	open_gate end &&
	wait_event "$id" clean &&
	has_exception "$id" "node-failure 2 shell rank 1 \(on [^ ]+\): Killed" &&
	test "$(contexts "$id" exception | wc -l)" = 1
'
test_expect_success 'the leader shell is gone and another is not: it is named, with the time' '
	flux module reload job-exec shell-exit-timeout=0.2s &&
	gate never.3 &&
	id=$(dummy_submit -N2 -n2 --requires=rank:0,3 "[ \$rank = 0 ] || exec cat never.3") &&
	wait_event "$id" clean &&
	has_exception "$id" "exec 0 job shells still active on $on_3 (0.2|200m)s after leader shell exit" &&
	contexts -p exec "$id" shell-exit >actual &&
	echo "{\"active_ranks\":\"3\",\"rank\":0,\"wait_status\":0}" >expected &&
	test_cmp expected actual &&
	flux module reload job-exec
'

# ---- nodes that fail -------------------------------------------------------------------------

# rexec: a shell that outlives its broker would stay.
mkdir lossy && printf '[exec]\nservice = "rexec"\n' >lossy/exec.toml
gate there.0 there.1 leave
# usage: bash losing CRITICAL. Two shells wait, and the node of the second is lost.
cat >losing <<END
id=\$(flux submit -N2 -n2 --setattr=system.exec.job_shell=$here/dummy-shell \\
	'echo >there.\$rank; [ \$rank = 1 ] && exec sleep inf; exec cat leave') &&
timeout $patience cat there.0 there.1 &&
flux job wait-event -t $patience \$id start &&
flux python $here/rpc.py job-exec.critical-ranks \\
	"{\"id\": \$(flux job id --to=dec \$id), \"ranks\": \"\$1\"}" &&
flux overlay disconnect 1 &&
flux job wait-event -t $patience \$id exception &&
if [ "\$1" = 0 ]; then timeout $patience bash -c ': >leave'; fi &&
flux job wait-event -t $patience \$id clean &&
flux job eventlog -f json \$id >eventlog
END
# usage: lost_with PATTERN. The whole of its first exception matches.
lost_with() {
	jq -r "$summary" eventlog >exceptions && cat exceptions && head -n 1 exceptions | grep -Ex -e "$1"
}
test_expect_success 'a node is lost that the job cannot do without: it ends, and the rank is named' '
	run_instance --config "$PWD/lossy" 2 bash losing 0-1 &&
	lost_with "exec 0 node failure on [^ ]+ \(rank 1\)"
'
test_expect_success 'a node is lost that it can do without: the job is told, and goes on' '
	run_instance --config "$PWD/lossy" 2 bash losing 0 &&
	lost_with "node-failure 2 node failure on [^ ]+ \(shell rank 1\)" &&
	test "$(wc -l <exceptions)" -eq 1 &&
	test "$(jq "select(.name == \"finish\").context.status" eventlog)" = 0
'

# The tree of PMI has shells 1 and 2 behind shell 0, and shell 3 behind shell 1. Each waits for those
# behind it before it ends, but not for ever.
gate met.0 met.1 met.2 met.3 part.0 part.1 part.2 part.3
# usage: bash without RANK CRITICAL
cat >without <<END
id=\$(flux submit -N4 -n4 -o exit-timeout=none sh -c "flux pmi exchange >/dev/null &&
	echo >met.\\\$FLUX_TASK_RANK; [ \\\$FLUX_TASK_RANK = \$1 ] && exec sleep inf
	cat part.\\\$FLUX_TASK_RANK") &&
flux job id --to=f58plain \$id >id.lost &&
timeout $patience cat met.0 met.1 met.2 met.3 &&
flux job wait-event -t $patience \$id start &&
flux python $here/rpc.py job-exec.critical-ranks \\
	"{\"id\": \$(flux job id --to=dec \$id), \"ranks\": \"\$2\"}" &&
flux overlay disconnect \$1 &&
flux job wait-event -t $patience \$id exception &&
for rank in 0 1 2 3; do
	[ \$rank = \$1 ] || timeout $patience bash -c ": >part.\$rank" || exit
done &&
flux job wait-event -t $patience \$id clean &&
flux job eventlog -f json \$id >eventlog
END
# usage: goes_on_without RANK CRITICAL
goes_on_without() {
	run_instance 4 bash without "$1" "$2" &&
		lost_with "node-failure 2 node failure on [^ ]+ \(shell rank $1\)" &&
		test "$(wc -l <exceptions)" -eq 1 &&
		test "$(jq "select(.name == \"finish\").context.status" eventlog)" = 0
}
# usage: stopped_by_hand RANK. Its broker does not come back, and nobody else looks after its unit and slice.
stopped_by_hand() {
	unit=$(all_units | grep "^shell-$1-$(cat id.lost)-") &&
		systemctl --user stop "$unit" "$(all_slices | grep "shell_$1_$(cat id.lost)_")" &&
		{ systemctl --user reset-failed "$unit" 2>/dev/null || true; }
}
test_expect_success UNITS,CONNECTOR 'a shell does not wait for one whose rank was given up' '
	goes_on_without 3 0-2
'
test_expect_success UNITS,CONNECTOR 'the unit of that rank can be stopped by hand' '
	stopped_by_hand 3
'
test_expect_success UNITS,CONNECTOR 'neither does the leader shell' '
	goes_on_without 2 0-1,3
'
test_expect_success UNITS,CONNECTOR 'nor has that unit to stay' '
	stopped_by_hand 2
'

# ---- exceptions ------------------------------------------------------------------------------

# usage: trapping SIGNAL COMMAND. Submits a job whose shell runs COMMAND for each such signal.
trapping() {
	rm -f trapping idle && gate trapping idle &&
		id=$(dummy_submit -n1 "
			trap '$2' $1; exec 9<>idle; echo >trapping; while :; do read -r _ <&9; done") &&
		ready trapping && wait_event "$id" start
}
test_expect_success 'a job that was ended has failed, whatever its shell says' '
	trapping TERM "exit 0" &&
	raise "$id" &&
	wait_event "$id" clean &&
	test "$(finish "$id")" = 256 &&
	test "$(contexts -p exec "$id" complete)" = "{\"status\":256}"
'
test_expect_success 'while it is ended, the stats say so' '
	rm -f ending leave.it && gate ending leave.it &&
	trapping TERM "echo >ending; cat leave.it; exit 5" &&
	stats_of "$id" | jq -e ".exception_in_progress == 0" &&
	raise "$id" &&
	ready ending &&
	stats_of "$id" | jq -e ".exception_in_progress == 1" &&
	open_gate leave.it &&
	wait_event "$id" clean
'
test_expect_success 'unless the exception has a status: then it is the jobs' '
	trapping TERM "exit 9" &&
	raise "$id" 768 &&
	wait_event "$id" clean &&
	test "$(finish "$id")" = 768
'
test_expect_success 'each fatal exception sends the term signal' '
	gate first &&
	trapping TERM "n=\$((n + 1)); [ \$n = 1 ] && echo >first; [ \$n = 2 ] && exit 4" &&
	raise "$id" &&
	ready first &&
	raise "$id" &&
	wait_event "$id" clean &&
	test "$(finish "$id")" = 1024
'
test_expect_success 'when its time is over the shell gets SIGALRM, not the term signal' '
	trapping ALRM "exit 6" &&
	rpc job-exec.expiration "{\"id\": $(flux job id --to=dec "$id"), \"expiration\": 1.0}" &&
	wait_event "$id" clean &&
	has_exception "$id" "timeout 0 resource allocation expired" &&
	test "$(finish "$id")" = 1536
'
test_expect_success 'an expiration of 0 is none' '
	id=$(flux submit -t 1h sleep inf) &&
	wait_event "$id" start &&
	rpc job-exec.expiration "{\"id\": $(flux job id --to=dec "$id"), \"expiration\": 0.0}" &&
	stats_of "$id" | jq -e ".expiration == 0" &&
	flux cancel "$id" &&
	wait_event "$id" clean
'

# ---- signals -------------------------------------------------------------------------------

test_expect_success 'shells get the signal that is configured' '
	flux module reload job-exec term-signal=SIGUSR1 &&
	trapping USR1 "exit 7" &&
	flux cancel "$id" &&
	wait_event "$id" clean &&
	test "$(finish "$id")" = 1792
'
# flux-shell ignores SIGURG.
test_expect_success 'then the tasks get theirs, through their shells' '
	flux module reload job-exec term-signal=SIGURG kill-signal=SIGUSR2 kill-timeout=1s &&
	gate task.0 task.1 silent &&
	id=$(flux submit -N2 -n2 bash -c "
		trap \"exit \$((8 + FLUX_TASK_RANK))\" USR2
		exec 9<>silent
		echo >task.\$FLUX_TASK_RANK
		while :; do read -r _ <&9; done") &&
	ready task.0 task.1 &&
	wait_event "$id" start &&
	flux cancel "$id" &&
	wait_event "$id" clean &&
	test "$(finish "$id")" = 2304
'
test_expect_success 'at last the ranks are drained, and the job ends without them' '
	flux module reload job-exec term-signal=SIGURG kill-signal=SIGURG kill-timeout=0.1s \
		max-kill-count=1 &&
	gate here.0 here.3 leave.0 leave.3 &&
	id=$(dummy_submit -N2 -n2 --requires=rank:0,3 "echo >here.\$rank; exec cat leave.\$rank") &&
	ready here.0 here.3 &&
	wait_event "$id" start &&
	flux cancel "$id" &&
	wait_event "$id" clean &&
	test "$(finish "$id")" = 1 &&
	test "$(contexts "$id" release | tail -n 1 | jq .final)" = true &&
	drained_for "$id" 0,3 "unkillable user processes for job %s" &&
	let_go leave.0 leave.3 &&
	flux module reload job-exec
'
test_expect_success UNITS 'no unit is left' '
	assert_no_units
'

test_done
