#!/bin/bash
test_description='an instance inside a job: nothing that it starts leaves the job'
instance_size=2
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

if ! test_have_prereq UNITS; then
	skip_all='needs our module and a user systemd'
	test_done
fi

# usage: inside OPTION... -- SCRIPT
# Runs the script in an instance that is a job.
inside() {
	local script=${*: -1}
	flux alloc --conf=resource.noverify=true "${@:1:$#-2}" bash -c "$script"
}
# The innermost unit that the process which runs it is in.
cat >where <<-\EOF
	#!/bin/sh
	sed -n "s,.*/\([^/]*\.service\).*,\1,p" /proc/self/cgroup | sort -u
EOF
chmod 755 where

test_expect_success 'a task of a job in a job is in the unit of the outer job' '
	id=$(flux submit -N1 --output=out flux start --conf=resource.noverify=true \
		sh -c "flux run ./where; systemctl --user list-units --plain --no-legend \"*shell-*\"") &&
	wait_event "$id" clean &&
	test_when_finished "cat out" &&
	flux job status "$id" &&
	head -n 1 out | grep "^shell-[01]-$(flux job id --to=f58plain "$id")-" &&
	test "$(grep -c "^shell-.*running" out)" -eq 1
'
test_expect_success 'so it is three levels deep, and on all ranks' '
	inside -N2 -n2 -- "flux run -N2 -n2 --label-io ./where; flux getattr jobid
		flux alloc -N1 -n1 --conf=resource.noverify=true flux run ./where" >out &&
	test_when_finished "cat out" &&
	id=$(flux job id --to=f58plain "$(grep "^[fƒ]" out)") &&
	grep "^[01]: shell-0-$id-" out &&
	grep "^[01]: shell-1-$id-" out &&
	grep "^shell-[01]-$id-" out
'
test_expect_success 'the statistics say so, and no warning does' '
	inside -N1 -- "flux module stats job-exec; flux dmesg >dmesg; flux getattr jobid >jobid" >stats &&
	jq -e ".launcher == \"fork\"" stats &&
	jq -r .notice stats | grep "inside job $(cat jobid) of Flux (attribute jobid)" &&
	grep "job-exec.*info.*inside job $(cat jobid) of Flux" dmesg &&
	test_must_fail grep "job-exec.*\(warn\|err\)" dmesg
'
test_expect_success 'exec.method=systemd is refused at load, with key, value and job' '
	inside -N1 -- "flux getattr jobid >jobid
		! flux module reload job-exec method=systemd; flux dmesg >dmesg
		! flux module load job-exec service=sdexec; flux dmesg >>dmesg
		flux module load job-exec && flux run echo ran" >out &&
	test_when_finished "cat dmesg" &&
	grep "exec.method=systemd: this runs inside job $(cat jobid) of Flux" dmesg &&
	grep "exec.service=sdexec: this runs inside job $(cat jobid) of Flux" dmesg &&
	grep -x ran out
'
test_expect_success 'so is a bound that only units can have' '
	test_must_fail inside -N1 --conf=exec.sdexec-properties.MemoryHigh=90% -- true 2>err &&
	grep "exec.sdexec-properties: this runs inside job [fƒ][^ ]* of Flux" err
'
test_expect_success 'a job that asks for a unit fails, and says why' '
	inside -N1 -- "id=\$(flux submit --setattr=exec.method=systemd true)
		flux job wait-event -q \$id clean; flux job eventlog \$id; flux getattr jobid >jobid" >out &&
	grep "exec method systemd is not available: .*inside job $(cat jobid) of Flux" out
'
test_expect_success 'what bounds the outer unit holds inside' '
	configure "[exec.sdexec-properties]" "OOMScoreAdjust = \"300\"" &&
	inside -N1 -- "flux run cat /proc/self/oom_score_adj" >out &&
	rm "$FLUX_TEST_CONFIG/exec.toml" && flux config reload &&
	test "$(cat out)" = 300
'
# Nothing but SIGKILL ends it, and it has left its session.
cat >stubborn <<-\EOF
	#!/bin/bash
	trap "" TERM HUP INT
	echo $$ >"$1"
	while :; do read -rt 999 <>"$2"; done
EOF
chmod 755 stubborn
# usage: submit_stubborn. An instance as a job, whose inner job is that one.
submit_stubborn() {
	flux submit -N1 flux start --conf=resource.noverify=true \
		sh -c "flux submit setsid ./stubborn pid quiet && sleep inf"
}
test_expect_success 'who kills the cgroup of the outer job ends all that runs inside' '
	gate pid quiet &&
	id=$(submit_stubborn) &&
	pid=$(wait_gate pid) &&
	test -e /proc/$pid &&
	systemctl --user kill -s KILL "$(units_of "$id")" &&
	wait_event "$id" clean &&
	test ! -e /proc/$pid
'
test_expect_success 'so does who cancels it, before its node is free' '
	id=$(submit_stubborn) &&
	pid=$(wait_gate pid) &&
	flux cancel "$id" &&
	wait_event "$id" free &&
	test ! -e /proc/$pid &&
	wait_event "$id" clean &&
	test -z "$(flux resource drain -no "{ranks}")"
'
test_expect_success 'an instance that does not know of its job is in it by its cgroup' '
	id=$(flux submit -N1 --output=out env -u FLUX_JOB_ID \
		flux start --test-size=2 --config-path="$FLUX_TEST_CONFIG" \
		sh -c "flux run -N2 -n2 ./where; flux module stats job-exec | jq -r .notice") &&
	wait_event "$id" clean &&
	test_when_finished "cat out" &&
	f58=$(flux job id --to=f58plain "$id") &&
	test "$(grep -c "^shell-[01]-$f58-" out)" -eq 2 &&
	grep "inside job [fƒ]${f58#f} of Flux (cgroup .*shell-" out
'
test_expect_success 'so is one whose outer job is a child of a broker, by its environment' '
	id=$(flux submit -N1 --setattr=exec.method=fork --output=out \
		flux start --test-size=1 --config-path="$FLUX_TEST_CONFIG" \
		sh -c "flux module stats job-exec | jq -r .launcher,.notice") &&
	wait_event "$id" clean &&
	test_when_finished "cat out" &&
	grep -x fork out &&
	grep "of Flux (FLUX_JOB_ID in the environment)" out
'
test_expect_success 'an instance in a job of another resource manager stays in that' '
	SLURM_JOB_ID=4711 flux start --test-size=1 --config-path="$FLUX_TEST_CONFIG" sh -c "
		flux run cat /proc/self/cgroup >inner; flux module stats job-exec >stats
		! flux module reload job-exec method=systemd; flux dmesg >dmesg
		flux module load job-exec" &&
	cat /proc/self/cgroup >outer &&
	test_cmp outer inner &&
	jq -r .notice stats | grep "inside job 4711 of Slurm (SLURM_JOB_ID in the environment)" &&
	grep "exec.method=systemd: this runs inside job 4711 of Slurm" dmesg
'
test_expect_success 'one in no job has units as before' '
	flux start --test-size=1 --config-path="$FLUX_TEST_CONFIG" sh -c "
		flux run ./where; flux module stats job-exec | jq -r .launcher" >out &&
	grep "^shell-0-f" out &&
	grep -x systemd out
'
test_expect_success 'no unit is left' '
	assert_no_units
'

test_done
