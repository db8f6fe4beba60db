#!/bin/bash
test_description='jobs of owner and guests on booted nodes: power cut, restart of all, systemd executed anew'
instance_size=0
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

if ! test_have_prereq CONNECTOR; then
	skip_all='needs the connector, which is built with our module'
	test_done
fi
# sharness gives each script a home of its own. The image is kept in the user's.
home=$(getent passwd "$(id -u)" | cut -d: -f6)
export XDG_CACHE_HOME=${XDG_CACHE_HOME:-$home/.cache}
build=$(dirname "$JOB_EXEC_RS_MODULE")
# Debian 12's, and one that executes a helper for each unit. Other ones, the long form and other seeds are
# for tests/nodes/run and tests/matrix.
for systemd in 252 257; do
	"$top/tests/nodes/image" --systemd $systemd "$build" >image 2>why
	if [ $? = 3 ]; then
		skip_all=$(tail -n 1 why)
		test_done
	fi
done
# usage: ended PID FILE
ended() {
	wait "$1"
	local status=$?
	cat "$2"
	return $status
}
# At the same time: they wait most of it.
declare -A campaigns
for systemd in 252 257; do
	"$top/tests/nodes/run" --build "$build" --systemd $systemd --short \
		--seed "${JOB_EXEC_RS_NODES_SEED:-2}" >told-$systemd 2>&1 &
	campaigns[$systemd]=$!
done
for systemd in 252 257; do
	test_expect_success "systemd $systemd: each job is accounted for, and nothing is left" '
		ended ${campaigns[$systemd]} told-$systemd
	'
done

test_done
