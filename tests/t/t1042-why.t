#!/bin/bash
test_description='flux job-exec-rs why: what a job waits for'
instance_size=4
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

if ! test_have_prereq UNITS; then
	skip_all='needs our module and a user systemd'
	test_done
fi
need_command

# usage: why JOBID. What is said is in the file said.
why() {
	flux job-exec-rs why "$1" >said 2>said-err
	local status=$?
	cat said said-err
	return $status
}
# usage: says JOBID PATTERN. For what comes in its own time.
says() {
	why "$1" >/dev/null
	grep "$2" said
}
first_line() {
	head -n 1 said | grep "$@"
}
# usage: scripts. Each prolog and epilog waits at its gate, if that is there. Not for ever: nobody opens it
# if the test has failed.
scripts() {
	cat >script <<-EOF
		#!/bin/bash
		cd "$PWD" || exit
		gate=gate-\$1-\$(flux getattr rank)
		if [ -e "\$gate" ]; then timeout $patience cat "\$gate"; fi
	EOF
	chmod +x script
	configure '[exec.perilog]' 'enable = true' \
		'[job-manager.prolog]' "command = ['$PWD/script', 'prolog']" 'per-rank = true' \
		'[job-manager.epilog]' "command = ['$PWD/script', 'epilog']" 'per-rank = true' &&
		flux exec -r all flux module reload job-exec
}

test_expect_success 'a job that there is not' '
	test_must_fail why f2 && grep "f2 unknown" said-err
'
test_expect_success 'a job that is held, and one that waits for it' '
	held=$(flux submit --urgency=hold true) &&
	why "$held" && first_line "$held of $(id -un): is held" &&
	id=$(flux submit --dependency=afterok:"$held" true) &&
	why "$id" && first_line "waits for its dependencies: after-success=$held" &&
	flux cancel "$held" && flux queue drain
'
test_expect_success 'a job that the scheduler does not start' '
	flux queue stop --quiet &&
	id=$(flux submit true) &&
	await says "$id" "waits for resources: the scheduler decides, for " &&
	flux queue start --quiet &&
	wait_event "$id" clean
'
test_expect_success 'a mocked job' '
	id=$(flux submit --setattr=system.exec.test.run_duration=1h true) &&
	wait_event "$id" start &&
	await says "$id" "next: in .* the mocked job ends" &&
	flux cancel "$id" && wait_event "$id" clean
'
test_expect_success 'a job that runs, and its time limit' '
	id=$(flux submit -N4 -n4 -t 1h sleep inf) &&
	wait_event "$id" start &&
	await says "$id" "led by .* (rank 0): runs, 4 of 4 shells, for " &&
	grep "next: in .* its time limit is over" said &&
	test_must_fail grep awaited said &&
	grep "launch: shells 0.*s (last: .*), start barrier 1 .*, start barrier 2 " said &&
	flux job-exec-rs why --json "$id" | jq -e ".led.state == \"running\" and (.text | length) > 1"
'
test_expect_success 'a rank whose module is away' '
	configure "peer-timeout = \"1h\"" &&
	flux exec -r 2 flux module remove job-exec &&
	away() { says "$id" "awaited: modules that do not answer, on .* (rank 2)"; } &&
	await away &&
	test_must_fail why "$id" &&
	grep "(rank 2) does not answer: " said &&
	grep "next: who is away for 1h is given up" said &&
	flux exec -r 2 flux module load job-exec &&
	back() { why "$id" && test_must_fail grep awaited said; } &&
	await back
'
test_expect_success 'a leader that is away' '
	led=$(flux submit -n1 --requires=rank:3 sleep inf) &&
	wait_event "$led" start &&
	flux exec -r 3 flux module remove job-exec &&
	why "$led" && first_line "led by .* (rank 3): its leader does not answer" &&
	grep "unknown: what it does: rank 3: No service matching" said &&
	flux exec -r 3 flux module load job-exec &&
	await says "$led" "runs, 1 of 1 shells" &&
	flux cancel "$led" && wait_event "$led" clean
'
test_expect_success 'a rank 0 that is away' '
	flux module remove job-exec &&
	why "$id" &&
	grep "unknown: the service does not answer: rank 0: No service matching" said &&
	flux module load job-exec &&
	await says "$id" "runs, 4 of 4 shells"
'
test_expect_success 'a job that is over' '
	flux cancel "$id" && wait_event "$id" clean &&
	await says "$id" "is over: CANCELED.* (exception cancel), for "
'
test_expect_success 'whom a job waits for in the barrier, also in its own eventlog' '
	gate late &&
	id=$(dummy_submit -N4 --setattr=system.exec.bulkexec.barrier-timeout=60 "early:
		[ \$rank = 2 ] && cat late
		exec flux python $here/barrier.py \$id \$rank") &&
	await says "$id" "waits in start barrier 1: 3 of 4 shells" &&
	grep "awaited: shells to enter the start barrier, on .* (rank 2)" said &&
	grep "(rank 2): shell: [0-9]* process.* in .*shell-2-" said &&
	grep "^    [0-9]* S .* cat" said &&
	grep "next: in .* who has not entered the barrier is drained, and the job fails" said &&
	wait_event -v -p exec -m barrier=1 "$id" log >noted &&
	grep "start barrier: 3 of 4 shells; waiting for fake2" noted &&
	await says "$id" "noted: .* ago: start barrier: 3 of 4 shells" &&
	open_gate late &&
	wait_event "$id" clean &&
	flux job attach "$id" 2>&1 | grep "start barrier: 3 of 4 shells"
'
test_expect_success 'whose shell goes on when the first has ended' '
	gate on &&
	id=$(dummy_submit -N2 "[ \$rank = 0 ] || cat on") &&
	await says "$id" "awaited: shells to end, on .* (rank 1)" &&
	first_line "runs, 1 of 2 shells" &&
	grep "next: in .* the job fails if a shell still runs" said &&
	open_gate on && wait_event "$id" clean
'
# It handles no SIGTERM, which systemd sends first.
test_expect_success 'what a shell has left behind' '
	flux exec -r all flux module reload job-exec kill-timeout=1h &&
	gate left behind &&
	id=$(dummy_submit -N1 "(trap \"\" TERM; echo >behind; cat left) </dev/null >/dev/null 2>&1 &
		cat behind") &&
	await says "$id" "has ended, but for what is left of shells" &&
	grep "awaited: what shells have left behind, on .* (rank 0)" said &&
	grep "^    [0-9]* S .* cat" said &&
	open_gate left && wait_event "$id" clean &&
	flux exec -r all flux module reload job-exec
'
test_expect_success 'a shell that is a child of its broker' '
	await no_records 0 1 2 3 &&
	flux exec -r all flux module reload job-exec method=fork &&
	gate child &&
	id=$(dummy_submit -N2 "[ \$rank = 0 ] || cat child") &&
	await says "$id" "awaited: shells to end, on .* (rank 1)" &&
	grep "(rank 1): shell: [0-9]* process.* in " said &&
	open_gate child && wait_event "$id" clean &&
	flux exec -r all flux module reload job-exec
'
# `cat` under a name that a terminal would obey.
test_expect_success 'what runs where a job is being killed, and what comes next' '
	flux exec -r all flux module reload job-exec kill-timeout=1h &&
	cp "$(command -v cat)" "$(printf "x\033[31my")" && gate deaf ready &&
	id=$(dummy_submit -N2 "if [ \$rank = 1 ]; then trap \"\" TERM; echo >ready; ./x*y deaf; fi") &&
	wait_gate ready &&
	flux cancel "$id" &&
	await says "$id" "is being ended (cancel), for " &&
	ends() { says "$id" "awaited: shells to end, on .* (rank 1)"; } &&
	await ends &&
	grep "(rank 1): shell: 2 processes in " said &&
	grep -F "x\\u{1b}[31my" said &&
	test_must_fail grep "$(printf "\033")" said &&
	grep "done: SIGTERM to shells" said &&
	grep "next: in .* SIGKILL to tasks; in .* SIGKILL to shells; .* nodes with what is left are drained" said &&
	open_gate deaf &&
	wait_event "$id" clean &&
	flux exec -r all flux module reload job-exec
'
test_expect_success 'a prolog, and an epilog' '
	gate gate-prolog-1 gate-epilog-0 &&
	scripts &&
	id=$(flux submit -N2 true) &&
	prolog() { says "$id" "awaited: prologs, on .* (rank 1)"; } &&
	await prolog &&
	first_line "waits for prologs" &&
	grep "(rank 1): prolog, running, time left [0-9]*m.*: [0-9]* process.* in prolog-1-" said &&
	open_gate gate-prolog-1 &&
	epilog() { says "$id" "awaited: epilogs, on .* (rank 0)"; } &&
	await epilog &&
	first_line "has ended, and waits for epilogs" &&
	grep "(rank 0): epilog, running: [0-9]* process.* in epilog-0-" said &&
	open_gate gate-epilog-0 &&
	wait_event "$id" clean &&
	rm gate-* && configure && flux exec -r all flux module reload job-exec
'
test_expect_success 'a systemd that does not answer' '
	patience=180 && # it is 30 s before a rank says so
	id=$(flux submit -n1 sleep inf) && wait_event "$id" start &&
	pid=$(systemctl --user show -p MainPID --value "$(units_of "$id")") &&
	systemd=$(ps -o ppid= -p "$pid") &&
	kill -STOP $systemd &&
	test_when_finished "kill -CONT $systemd" &&
	late=$(flux submit -n1 true) &&
	hangs() { says "$late" "(rank [0-9]*): systemd does not answer: "; } &&
	await hangs &&
	first_line "starts: all but 1 of 1 shells run" &&
	await says "$late" "noted: .* systemd on .* does not answer: " &&
	kill -CONT $systemd &&
	wait_event "$late" clean && flux cancel "$id" && wait_event "$id" clean
'
test_done
