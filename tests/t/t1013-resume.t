#!/bin/bash
test_description='connections that outlive their broker: the resume connector alone'
instance_size=0
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

# The brokers here are killed and started by the test, with flux-core's own modules.
unset FLUX_MODULE_PATH_PREPEND FLUX_MODPROBE_PATH_APPEND
if ! test_have_prereq CONNECTOR; then
	skip_all='needs the connector, which is built with our module'
	test_done
fi
# JOB_EXEC_RS_RIDE=long runs the long version, which takes 20 minutes (and needs
# JOB_EXEC_RS_SCRIPT_LIMIT=1800).
if [ "${JOB_EXEC_RS_RIDE:-}" = long ]; then
	follower='20 20' rank0='20 10002' away='600 100'
else
	follower='4 1' rank0='3 1500' away='4 40'
fi
ride() {
	flux python "$here/ride-$1.py" "${@:2}"
}

for check in $(flux python "$here/ride-rough.py"); do
	test_expect_success "${check//_/ }" "ride rough $check"
done
test_expect_success 'a follower is killed: watches, services and subscriptions go on' '
	ride follower $follower
'
test_expect_success 'rank 0 is killed: what its KVS had forgotten is written again, once and in order' '
	ride rank0 $rank0
'
test_expect_success 'a long outage and much to write: memory is bounded, nothing spins, nothing is lost' '
	ride away $away
'

test_done
