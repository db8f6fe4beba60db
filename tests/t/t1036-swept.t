#!/bin/bash
test_description='the state directory is swept under a running instance'
instance_size=2
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

if ! test_have_prereq UNITS; then
	skip_all='needs our module and a user systemd'
	test_done
fi

# The brokers of a test instance share their rundir.
directory=$(flux getattr rundir)/job-exec
# Records stay until a checkpoint of the KVS holds the end of their job.
is_empty() {
	[ -z "$(ls "$directory")" ]
}
# usage: log_lines. What the module says, without its debug messages.
log_lines() {
	flux dmesg | grep 'job-exec\.' | grep -vc 'job-exec\.debug'
}
# usage: holding_job FILE. A job of two ranks whose tasks end with status 5 when FILE is there.
# Its two tasks look for a file, because only one of them could read a gate.
holding_job() {
	local id
	id=$(flux submit -N2 -n2 sh -c "until [ -e $1 ]; do sleep 0.1; done; echo done; exit 5") &&
	wait_event -q -p exec "$id" shell.start &&
	wait_event -q "$id" start &&
	echo "$id"
}
sweep_files() {
	rm -rf "${1:?}"/*
}
# At once: rm -r would meet what is made again meanwhile.
sweep_dir() {
	mv "$1" "$1-away" && rm -rf "$1-away"
}

for what in files dir; do
	test_expect_success "$what: jobs that ran end with their status, and others run" '
		id=$(holding_job $PWD/end-$what) &&
		sweep_$what "$directory" &&
		flux run -N2 -n2 echo new >new &&
		test "$(sort -u new)" = new &&
		touch end-$what &&
		wait_event "$id" clean &&
		test "$(flux jobs -no "{status} {returncode}" "$id")" = "FAILED 5" &&
		test "$(flux job attach "$id" 2>/dev/null | grep -c done)" = 2 &&
		assert_no_units
	'
	test_expect_success "$what: the directory is private, and nothing is left in it" '
		test "$(stat -c %a "$directory")" = 700 &&
		await is_empty
	'
	test_expect_success "$what: the job says that output may be missing, and nothing is drained" '
		test "$(flux job eventlog -p exec "$id" | grep -c "output after this may be missing")" = 2 &&
		test -z "$(flux resource drain -no {ranks})"
	'
	test_expect_success "$what: the log has a few lines" '
		test_when_finished "flux dmesg" &&
		test "$(log_lines)" -le 12
	'
done

test_expect_success 'a module that is loaded again after a sweep knows what runs' '
	id=$(holding_job $PWD/end-reload) &&
	sweep_files "$directory" &&
	flux run true &&
	flux module reload job-exec &&
	touch end-reload &&
	wait_event "$id" clean &&
	test "$(flux jobs -no "{status} {returncode}" "$id")" = "FAILED 5" &&
	assert_no_units
'

test_done
