#!/bin/bash
test_description='shells are confined to the resources of their jobs (exec.sdexec-constrain-resources)'
instance_size=2
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

# usage: configure LINE...
configure() {
	printf '%s\n' '[exec]' "$@" | flux config load
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

# usage: not_loaded LINE TEXT [ARGUMENT...]
# With this configuration the module does not load, and says TEXT. Without it it does.
not_loaded() {
	flux module remove job-exec &&
	configure "$1" &&
	flux dmesg -C &&
	test_must_fail flux module load job-exec "${@:3}" &&
	flux dmesg -H >log &&
	configure &&
	flux module load job-exec &&
	grep -e "$2" log &&
	flux run true
}
test_expect_success NO_CPUSET 'what cannot be kept is refused at load, with the reason' '
	not_loaded "sdexec-constrain-resources = true" \
		"exec.sdexec-constrain-resources: .*cpuset is not delegated"
'
test_expect_success 'so is a method that cannot keep it' '
	not_loaded "sdexec-constrain-resources = true" \
		"exec.sdexec-constrain-resources: exec.method is fork" method=fork &&
	not_loaded "sdexec-properties.MemoryHigh = \"1G\"" \
		"exec.sdexec-properties: exec.method is fork" method=fork
'
test_expect_success 'and a property that no unit can have' '
	not_loaded "sdexec-properties.MemoryHigh = \"much\"" \
		"exec.sdexec-properties: unit property MemoryHigh=.much.: " &&
	test_must_fail configure "sdexec-properties.MemoryHi = \"1G\"" 2>err &&
	grep "exec.sdexec-properties: unit property MemoryHi=.1G.: not a property that can be set" err
'
test_expect_success 'where properties come later and cannot be kept, this is said' '
	await no_records 0 &&
	flux module reload job-exec method=fork &&
	flux dmesg -C &&
	configure "sdexec-properties.MemoryHigh = \"1G\"" &&
	flux dmesg -H >log &&
	configure &&
	flux module reload job-exec &&
	grep "exec.sdexec-properties has no effect: jobs are children of the broker" log
'
test_expect_success 'a change while the module is loaded waits for the next load, and this is said' '
	flux dmesg -C &&
	configure "sdexec-constrain-resources = true" &&
	flux dmesg -H >log &&
	grep "exec.sdexec-constrain-resources takes effect when the module is loaded again" log &&
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
	sed "s/ƒ/f/" drained >actual &&
	failed="sdexec constraint check failed on [^ ]+ for job $(flux job id --to=f58plain "$id")" &&
	grep -E "^0 $failed: AllowedCPUs not enforced" actual &&
	assert_no_units "$id" &&
	flux resource undrain 0
'
test_expect_success BELIEVES 'what the mapper says of the job wins over the configuration' '
	flux exec -r all flux module remove sdexec-mapper &&
	gate asked &&
	{ flux python "$here/mapper.py" asked "{\"DevicePolicy\": \"closed\",
		\"DeviceAllow\": \"/dev/null rw\", \"MemoryHigh\": \"64M\"}" & } &&
	mapper=$! &&
	wait_gate asked &&
	configure "sdexec-constrain-resources = true" "sdexec-properties.MemoryHigh = \"1G\"" &&
	id=$(flux submit --requires=rank:0 sleep inf) &&
	wait_gate asked >R &&
	wait_event "$id" start &&
	for name in DevicePolicy DeviceAllow MemoryHigh; do
		systemctl --user show -P $name "$(units_of "$id")" || return 1
	done >actual &&
	kill $mapper &&
	flux cancel "$id" &&
	wait_event "$id" clean &&
	printf "%s\n" closed "/dev/null rw" $((64 << 20)) >expected &&
	test_cmp expected actual &&
	flux job info "$id" R | jq -S .execution.R_lite >expected &&
	jq -S .execution.R_lite R >actual &&
	test_cmp expected actual &&
	flux exec -r all flux module load sdexec-mapper
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
