#!/bin/bash
test_description='instances as jobs: flux batch, flux alloc'
instance_size=4
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

# The nested instance has the ranks and hostnames that the outer instance has made up.
nested=(--conf=resource.noverify=true)

# usage: mapped_modules. The file that each broker of the instance has loaded as job-exec.
cat >mapped-modules <<'EOF'
flux exec -r all -l bash -c \
    'grep -ho "/[^ ]*job-exec[^ ]*\.so" /proc/$(flux getattr broker.pid)/maps | sort -u' | sort
EOF

test_expect_success 'a batch script runs jobs of its own' '
	cat >script <<-\EOF &&
	#!/bin/sh
	flux run -N2 -n4 hostname
	flux run -N1 -n1 sh -c "exit 3"
	echo status $?
	flux jobs -ano "{name} {result}"
	EOF
	id=$(flux batch -N2 -n4 "${nested[@]}" --output=out script) &&
	wait_event "$id" clean &&
	flux job status "$id" &&
	test "$(grep -cx "$(hostname)" out)" -eq 4 &&
	grep -x "status 3" out &&
	grep -x "hostname COMPLETED" out &&
	grep -x "sh FAILED" out
'
test_expect_success 'its status is the status of the job' '
	printf "#!/bin/sh\nexit 7\n" >script &&
	id=$(flux batch -N1 -n1 "${nested[@]}" --output=out script) &&
	wait_event "$id" clean &&
	test_expect_code 7 flux job status "$id"
'
test_expect_success 'flux alloc runs one command in an instance' '
	flux alloc -N2 -n2 "${nested[@]}" flux run -N2 -n2 hostname >out &&
	test "$(grep -cx "$(hostname)" out)" -eq 2
'
# FLUX_MODULE_PATH_PREPEND and FLUX_MODPROBE_PATH_APPEND are in the environment of the job.
test_expect_success OURS 'the nested instance has our module, on every rank' '
	flux alloc -N2 -n2 "${nested[@]}" bash mapped-modules >out &&
	printf "%s\n" "0: $TMPDIR/modules/job-exec.so" "1: $TMPDIR/modules/job-exec.so" >expected &&
	test_cmp expected out
'
test_expect_success OURS 'a nested instance starts while the module of its rank is away' '
	gate here go &&
	cat >start <<-\EOF &&
	#!/bin/sh
	echo >here
	cat go
	exec flux start --conf=resource.noverify=true flux run hostname
	EOF
	chmod 755 start &&
	id=$(flux submit -N1 -n1 --requires=rank:1 --output=out ./start) &&
	wait_gate here &&
	flux exec -r 1 flux module remove job-exec &&
	open_gate go &&
	await test -s out &&
	flux exec -r 1 flux module load job-exec &&
	wait_event "$id" clean &&
	flux job status "$id" &&
	grep -x "$(hostname)" out
'
test_expect_success 'an instance in an instance in an instance' '
	flux alloc -N2 -n2 "${nested[@]}" \
		flux alloc -N1 -n1 "${nested[@]}" flux run hostname >out &&
	test "$(grep -cx "$(hostname)" out)" -eq 1
'
test_expect_success 'a batch job that is cancelled takes its jobs with it' '
	gate inner.there &&
	cat >script <<-\EOF &&
	#!/bin/sh
	flux submit -N2 -n2 sh -c "echo \$\$ >inner.pid.\$FLUX_TASK_RANK; echo >inner.there; exec sleep inf"
	flux queue idle
	EOF
	id=$(flux batch -N2 -n2 "${nested[@]}" --output=out script) &&
	wait_gate inner.there &&
	wait_event "$id" start &&
	flux cancel "$id" &&
	wait_event "$id" clean &&
	! flux job status "$id" &&
	for pid in $(cat inner.pid.*); do
		await test ! -e /proc/$pid || return 1
	done
'
test_expect_success 'jobs run after that' '
	flux run -N4 -n4 true
'
test_expect_success UNITS 'no unit is left, of either' '
	assert_no_units
'

test_done
