#!/bin/bash
test_description='shells are confined to the resources of their jobs (exec.sdexec-constrain-resources)'
instance_size=2
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

# usage: configure LINE...
configure() {
	printf '[exec]\n%s\n' "$*" | flux config load
}
note() {
	contexts "$1" exception | jq -r .note
}
# The CPUs of a job's shell on rank 0.
cpus_of() {
	local unit group
	unit=$(units_of "$1" | head -n 1) &&
		group=$(systemctl --user show -P ControlGroup "$unit") &&
		cat "/sys/fs/cgroup$group/cpuset.cpus"
}
reattached() {
	exec_events "$1" | grep -x reattach
}
manager=$(systemctl --user show -P ControlGroup 2>/dev/null)
if grep -qsw cpuset "/sys/fs/cgroup$manager/cgroup.controllers"; then
	test_set_prereq CPUSET
else
	echo "# no CPUSET: cpuset is not delegated to systemd --user here (Delegate= of user@.service)"
	test_have_prereq UNITS && test_set_prereq NO_CPUSET
fi

test_expect_success NO_CPUSET 'what cannot be kept is refused at load, with the reason' '
	configure "sdexec-constrain-resources = true" &&
	flux module remove job-exec &&
	flux dmesg -C &&
	test_must_fail flux module load job-exec &&
	flux dmesg -H >log &&
	grep "exec.sdexec-constrain-resources: .*cpuset is not delegated" log &&
	configure &&
	flux module load job-exec &&
	flux run true
'
test_expect_success 'so is a method that cannot keep it' '
	configure "sdexec-constrain-resources = true" &&
	flux module remove job-exec &&
	flux dmesg -C &&
	test_must_fail flux module load job-exec method=fork &&
	flux dmesg -H >log &&
	grep "exec.sdexec-constrain-resources: exec.method is fork" log &&
	configure &&
	flux module load job-exec &&
	flux run true
'
test_expect_success 'a change while the module is loaded waits for the next load, and this is said' '
	flux dmesg -C &&
	configure "sdexec-constrain-resources = true" &&
	flux dmesg -H >log &&
	grep "exec.sdexec-constrain-resources.* take effect when the module is loaded again" log &&
	flux run true &&
	configure
'

# Where the module believes that it can confine shells, and systemd cannot.
if test_have_prereq NO_CPUSET && [ -n "${USER_SYSTEMD_CGROUP:-}" ] && [ "$(id -u)" = 0 ]; then
	test_set_prereq BELIEVES
fi
test_expect_success BELIEVES 'without the mapper nothing is started, and the job is told what is missing' '
	echo cpuset >controllers &&
	mount --bind controllers "/sys/fs/cgroup$manager/cgroup.controllers" &&
	configure "sdexec-constrain-resources = true" &&
	flux exec -r all flux module reload job-exec &&
	id=$(flux submit true) &&
	wait_event "$id" clean &&
	note "$id" >note &&
	grep "sdexec-mapper.lookup: No service matching sdexec-mapper.lookup is registered" note
'
test_expect_success BELIEVES 'a shell that is not confined is ended, its job fails, and its rank is drained' '
	flux exec -r all flux module load sdexec-mapper &&
	id=$(flux submit --requires=rank:0 sleep inf) &&
	wait_event "$id" clean &&
	note "$id" >note &&
	grep "sdexec constraint check failed on .* (rank 0): AllowedCPUs not enforced" note &&
	contexts "$id" finish >finish &&
	flux resource drain -no "{ranks} {reason}" >drained &&
	grep "^0 sdexec constraint check failed" drained &&
	assert_no_units "$id" &&
	flux resource undrain 0
'
test_expect_success BELIEVES 'a job that is to run outside of a unit fails, too' '
	id=$(flux submit --setattr=system.exec.method=fork true) &&
	wait_event "$id" clean &&
	note "$id" >note &&
	grep "exec method fork cannot confine a shell" note
'
test_expect_success BELIEVES 'without the setting jobs run' '
	umount "/sys/fs/cgroup$manager/cgroup.controllers" &&
	configure &&
	flux exec -r all flux module remove sdexec-mapper &&
	flux exec -r all flux module reload job-exec &&
	flux run -N2 -n2 true
'

test_expect_success CPUSET 'each shell has the CPUs of its job' '
	configure "sdexec-constrain-resources = true" &&
	flux exec -r all flux module load sdexec-mapper &&
	flux exec -r all flux module reload job-exec &&
	id=$(flux submit -n1 -c1 --requires=rank:0 sleep inf) &&
	wait_event "$id" start &&
	cpus_of "$id" >cpus &&
	test_debug "cat cpus" &&
	grep "^[0-9]" cpus &&
	flux cancel "$id" &&
	wait_event "$id" clean
'
test_expect_success CPUSET 'a job on two ranks is confined on both' '
	id=$(flux submit -N2 -n2 sleep inf) &&
	wait_event "$id" start &&
	units_of "$id" >units &&
	while read -r unit; do
		systemctl --user show -P AllowedCPUs "$unit" | grep . || return 1
	done <units &&
	flux cancel "$id" &&
	wait_event "$id" clean
'
test_expect_success CPUSET 'a reload of the module leaves the shell alone' '
	id=$(flux submit sleep inf) &&
	wait_event "$id" start &&
	flux exec -r all flux module reload job-exec &&
	await reattached "$id" &&
	test "$(flux jobs -no "{state}" "$id")" = RUN &&
	flux cancel "$id" &&
	wait_event "$id" clean
'

test_done
