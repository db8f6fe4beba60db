#!/bin/bash
test_description='jobs in CLEANUP while rank 0 goes and comes back'
instance_size=0
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

if ! test_have_prereq UNITS || ! test_have_prereq CONNECTOR; then
	skip_all='needs a user systemd, and the connector, which is built with our module'
	test_done
fi

for way in killed stopped reloaded; do
	test_expect_success "a cancelled job keeps its resources and output while rank 0 is $way" '
		flux python "$here/held-jobs.py" "$way"
	'
done
test_expect_success 'a job that ends between two checkpoints is not held' '
	flux python "$here/held-jobs.py" undisturbed
'

test_done
