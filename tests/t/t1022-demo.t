#!/bin/bash
test_description='job-exec-rs demo --crash --flux'
instance_size=0
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

tool=$(dirname "$JOB_EXEC_RS_MODULE")/job-exec-rs
if ! test_have_prereq UNITS || ! test_have_prereq CONNECTOR || ! [ -x "$tool" ]; then
	skip_all='needs a user systemd, the tool and the connector, which are built with our module'
	test_done
fi
mkdir tmp

test_expect_success 'a job outlives all brokers' '
	TMPDIR=$PWD/tmp "$tool" demo --crash --flux -N3 >out &&
	grep "the same processes all the time" out &&
	grep "the true status: exit 7, of rank 2" out &&
	grep "each line once and in order" out
'
test_expect_success 'nothing is left' '
	test -z "$(ls tmp)"
'
test_expect_success 'without Flux it says what it needs' '
	test_must_fail env PATH=/nowhere TMPDIR="$PWD/tmp" "$tool" demo --crash --flux 2>err &&
	grep "needs a Flux and a systemd --user: flux keygen" err &&
	test -z "$(ls tmp)"
'
test_expect_success 'without a user bus too' '
	test_must_fail env -u DBUS_SESSION_BUS_ADDRESS -u XDG_RUNTIME_DIR TMPDIR="$PWD/tmp" \
		"$tool" demo --crash --flux 2>err &&
	grep "needs a Flux and a systemd --user: .*bus" err &&
	test -z "$(ls tmp)"
'

test_done
