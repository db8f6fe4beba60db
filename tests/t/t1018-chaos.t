#!/bin/bash
test_description='jobs of every kind while brokers are killed, stopped, reloaded and restarted'
instance_size=0
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

if ! test_have_prereq UNITS || ! test_have_prereq CONNECTOR; then
	skip_all='needs a user systemd, and the connector, which is built with our module'
	test_done
fi

# The long form, with other seeds, is tests/chaos/run.
test_expect_success 'each job is accounted for, and nothing is left' '
	flux python "$top/tests/chaos/chaos.py" --short --seed "${JOB_EXEC_RS_CHAOS_SEED:-1}"
'

test_expect_success 'so is each prolog and epilog' '
	flux python "$top/tests/chaos/chaos.py" --short --scripts \
		--seed "${JOB_EXEC_RS_CHAOS_SEED:-1}"
'

test_expect_success 'who starts late finds what the others wrote before they came to the barrier' '
	flux python "$top/tests/chaos/late.py"
'

test_done
