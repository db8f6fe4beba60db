#!/bin/bash
test_description='what shells of a job send to each other outlives their brokers'
instance_size=0
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

if ! test_have_prereq UNITS || ! test_have_prereq CONNECTOR; then
	skip_all='needs a user systemd, and the connector, which is built with our module'
	test_done
fi

test_expect_success 'output and PMI of three ranks while each broker dies some times' '
	flux python "$here/ride-shells.py" 2
'

test_expect_success 'what is typed before the shells are connected again arrives' '
	flux python "$here/ride-input.py" 4
'

test_expect_success 'who has typed is shown the end of a job if the answer was lost' '
	flux python "$here/ride-unanswered.py"
'

test_expect_success 'signals to a shell that has ended but for its output do not lose it' '
	flux python "$here/ride-signals.py"
'

test_expect_success 'they ask the rank above them about their job, and their own when that is away' '
	flux python "$here/ride-informed.py"
'

test_expect_success 'a shell whose KVS is behind asks rank 0 for its R' '
	flux python "$here/ride-behind.py"
'

test_done
