#!/bin/bash
test_description='nodes with running jobs take new ones while sdmon watches'
instance_size=0
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

program=
[ -n "$JOB_EXEC_RS_MODULE" ] && program=$(dirname "$JOB_EXEC_RS_MODULE")/job-exec-rs
if ! test_have_prereq UNITS || ! test_have_prereq CONNECTOR || ! [ -x "${program:-/nonexistent}" ]; then
	skip_all='needs a user systemd, and our program and the connector beside our module'
	test_done
fi

# The drop-in of an installation tells sdmon what to watch.
test_expect_success 'a node is not held back because a job runs there' '
	"$program" install --destdir "$PWD/dest" &&
	module_dir=$(flux config builtin module_path) &&
	data_dir=$(flux config builtin datadir) &&
	FLUX_MODULE_PATH_PREPEND=$PWD/dest${module_dir%%:*} \
	FLUX_MODPROBE_PATH_APPEND=$PWD/dest$data_dir/modprobe flux python "$here/ride-sdmon.py"
'

test_done
