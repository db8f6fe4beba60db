#!/bin/bash
test_description='what shells rely on: command, environment, unit; and those of other users'
instance_size=2
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

guest=42

property() {
	systemctl --user show -P "$1" "$2"
}

# If root runs the stand-in for the IMP, the guest is another user, who needs access to this directory.
chmod 755 "$TMPDIR" && chmod 777 .
gate told end
chmod 666 told end
cat >telling-shell <<END
#!/bin/sh
cd '$PWD'
printf '%s\n' "\$@" >shell.args
env >shell.env
echo >told
cat end
END
cat >telling-imp <<END
#!/bin/sh
cd '$PWD'
printf '%s\n' "\$@" "\$FLUX_IMP_EXEC_HELPER" >imp.args
exec '$here/imp.py' "\$@"
END
printf '#!/bin/sh\nexit 1\n' >no-shell
# It ignores SIGUSR1, which is for the IMP: a broker that is not root could not send it that.
printf '#!/bin/sh\ntrap "" TERM USR1\necho >%s\nexec sleep inf\n' "$PWD/told" >stubborn-shell
chmod 755 ./*-shell telling-imp

# usage: told_by [OPTION...]. Submits a job with that shell; what it has told is there then.
told_by() {
	rm -f shell.args shell.env &&
	id=$(flux submit -n1 --setattr=system.exec.job_shell="$PWD/telling-shell" "$@" true) &&
	wait_gate told >/dev/null
}
test_expect_success 'the argument of a shell is the decimal id of its job' '
	told_by && wait_event "$id" start &&
	flux job id --to=dec "$id" >expected &&
	test_cmp expected shell.args
'
test_expect_success 'it has the name of the namespace, and a way to its broker' '
	grep -x "FLUX_KVS_NAMESPACE=$(flux job namespace "$id")" shell.env &&
	path=$(flux getattr local-uri) &&
	grep -x "FLUX_URI=[a-z]*://${path#local://}.*" shell.env
'
test_expect_success UNITS 'it has nothing that systemd says to a service' '
	test_must_fail grep -e ^NOTIFY_SOCKET= -e ^INVOCATION_ID= -e ^LISTEN_ -e ^JOURNAL_STREAM= shell.env
'
test_expect_success UNITS 'its unit is a service with these properties' '
	unit=$(units_of "$id") &&
	for name in Description Type KillMode RemainAfterExit TimeoutStopUSec StandardInput Environment; do
		property $name "$unit" || return 1
	done | sed "s/.*FLUX_KVS_NAMESPACE=job-\([0-9]*\).*/job \1/" >actual &&
	printf "%s\n" "User workload for Flux job $(flux job id --to=f58plain "$id")" exec control-group \
		yes 5s null "job $(flux job id --to=dec "$id")" >expected &&
	test_cmp expected actual &&
	open_gate end &&
	wait_event "$id" clean
'
test_expect_success !UNITS 'it ends' '
	open_gate end && wait_event "$id" clean
'
test_expect_success UNITS 'it has the variables of its broker, but for those' '
	cat >inner <<-\EOF &&
	id=$(flux submit -n1 --setattr=system.exec.job_shell="$PWD/telling-shell" true) &&
	timeout 60 cat told >/dev/null &&
	timeout 60 bash -c ": >end" &&
	flux job wait-event -t 60 "$id" clean
	EOF
	rm shell.env &&
	COLOUR=green NOTIFY_SOCKET=$PWD/nobody INVOCATION_ID=$(printf "%032d" 7) run_instance 1 bash inner &&
	grep -x COLOUR=green shell.env &&
	test_must_fail grep -e ^NOTIFY_SOCKET= -e ^INVOCATION_ID= shell.env
'
test_expect_success UNITS 'exec.sdexec-properties are properties of the unit' '
	configure "sdexec-properties.MemoryHigh = \"200M\"" "sdexec-properties.Nice = \"7\"" &&
	flux module stats job-exec | jq -cS .config.sdexec_properties >actual &&
	echo "{\"MemoryHigh\":\"200M\",\"Nice\":\"7\"}" >expected &&
	test_cmp expected actual &&
	told_by &&
	property MemoryHigh "$(units_of "$id")" >actual &&
	property Nice "$(units_of "$id")" >>actual &&
	open_gate end &&
	wait_event "$id" clean &&
	configure &&
	test "$(xargs <actual)" = "209715200 7"
'

# ---- jobs of other users -----------------------------------------------------------------

test_expect_success 'without an IMP they fail, and it is said why' '
	id=$(guest_submit $guest true) &&
	wait_event "$id" clean &&
	contexts "$id" exception >said &&
	grep "failed to initialize implementation" said &&
	if ! test_have_prereq OURS; then flux dmesg >>said; fi &&
	grep "unable run multiuser job with no IMP configured!" said
'
test_expect_success UNITS 'with one it gets the shell to execute, and the name of its helper' '
	configure "imp = \"$PWD/telling-imp\"" &&
	id=$(guest_submit $guest -n1 --setattr=system.exec.job_shell="$PWD/telling-shell" true) &&
	wait_gate told >/dev/null &&
	decimal=$(flux job id --to=dec "$id") &&
	printf "%s\n" exec "$PWD/telling-shell" "$decimal" "flux imp_exec_helper $decimal" >expected &&
	sed "s/^env -u INVOCATION_ID //" imp.args >actual &&
	test_cmp expected actual
'
test_expect_success UNITS 'its unit is left to the IMP' '
	unit=$(units_of "$id") &&
	echo "$unit" | grep "^imp-shell-[01]-" &&
	for name in Type KillMode TimeoutStopUSec RemainAfterExit; do
		property $name "$unit" || return 1
	done | xargs >actual &&
	echo notify process infinity yes >expected &&
	test_cmp expected actual &&
	stats_of "$id" | jq -e ".multiuser == 1"
'
test_expect_success UNITS 'its job ends with the status of the shell' '
	open_gate end &&
	wait_event "$id" clean &&
	test "$(contexts "$id" finish)" = "{\"status\":0}" &&
	configure
'
test_expect_success UNITS 'the helper tells the IMP which devices its unit may use' '
	cat >asking-imp <<-EOF &&
	#!/bin/sh
	\$FLUX_IMP_EXEC_HELPER >$PWD/helper.json
	exec $here/imp.py "\$@"
	EOF
	chmod 755 asking-imp &&
	flux exec -r all flux module load sdbus &&
	configure "imp = \"$PWD/asking-imp\"" "sdexec-properties.DevicePolicy = \"closed\"" &&
	id=$(guest_submit $guest -n1 true) &&
	wait_event "$id" clean &&
	configure &&
	flux exec -r all flux module remove sdbus &&
	jq -e ".J and .options.DevicePolicy == \"closed\"" helper.json
'
test_expect_success UNITS 'a shell that does not end is killed by the IMP, which is asked to' '
	configure "imp = \"$here/imp.py\"" "kill-timeout = \"0.1s\"" &&
	id=$(guest_submit $guest -n1 --setattr=system.exec.job_shell="$PWD/stubborn-shell" true) &&
	wait_gate told >/dev/null &&
	wait_event "$id" start &&
	flux cancel "$id" &&
	wait_event "$id" clean &&
	test "$(contexts "$id" finish)" = "{\"status\":$((137 << 8))}" &&
	configure
'
test_expect_success UNITS 'shells under the IMP that end before the first barrier drain their ranks' '
	configure "imp = \"$here/imp.py\"" &&
	id=$(guest_submit $guest -N2 -n2 --setattr=system.exec.job_shell="$PWD/no-shell" true) &&
	wait_event "$id" clean &&
	flux resource drain -no "{ranks} {reason}" | sed "s/ƒ/f/" >actual &&
	echo "0-1 $(flux job id --to=f58plain "$id") terminated before first barrier" >expected &&
	test_cmp expected actual &&
	flux resource undrain 0-1 &&
	configure
'
test_expect_success UNITS 'a rank says whether its shell of a job has ended' '
	rm -f end && gate end &&
	id=$(flux submit -N2 -n2 sh -c "[ \$FLUX_TASK_RANK = 1 ] || cat end") &&
	wait_event "$id" release &&
	named="{\"id\": $(flux job id --to=dec "$id")}" &&
	rpc 0 job-exec.shell-runs "$named" &&
	test_must_fail rpc 1 job-exec.shell-runs "$named" 2>err &&
	grep ESRCH err &&
	open_gate end &&
	wait_event "$id" clean
'
test_expect_success UNITS 'no unit is left' '
	assert_no_units
'

test_done
