#!/bin/bash
test_description='brokers as a site runs them: services that systemd restarts'
instance_size=0
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

if ! test_have_prereq UNITS || ! test_have_prereq CONNECTOR; then
	skip_all='needs a user systemd, and the connector, which is built with our module'
	test_done
fi

test_expect_success 'a job outlives all brokers, their run directories and its records' '
	flux python "$here/service-restart.py"
'

test_expect_success 'a job outlives a broker that is killed while the one above it shuts down' '
	flux python "$here/lost-below.py"
'

test_expect_success 'what a job has in its FLUX_JOB_TMPDIR outlives a stop, and no longer than the job' '
	flux python "$top/tests/chaos/kept.py"
'

test_expect_success 'what was written before a clean stop is there' '
	flux python "$here/clean-stop.py"
'

test_expect_success 'a clean stop and the start after it sync the dump and the database made from it' '
	flux python "$here/dump-synced.py"
'

test_expect_success 'a job that waits is not forgotten, although nothing runs' '
	flux python "$here/waiting-job.py"
'

test_expect_success 'what the instance has forgotten ends, and waits for no peer-timeout' '
	flux python "$here/forgotten.py"
'

test_expect_success 'shells of an instance that does not come back end with its broker' '
	flux python "$here/gone-for-good.py"
'

test_done
