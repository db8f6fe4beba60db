#!/bin/bash
test_description='guests of a system instance, with a real IMP: setuid, and munge'
instance_size=0
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

owner=${JOB_EXEC_RS_IMP_OWNER:-flux}
guest=${JOB_EXEC_RS_IMP_GUEST:-nobody}
imp=${JOB_EXEC_RS_IMP:-$(realpath -m "$(command -v flux)/../../libexec/flux/flux-imp")}

# It lets the owner run shells for others. Who may not is refused before anything is read.
imp_allows() {
	echo '{}' | setpriv --reuid "$owner" --regid "$(id -g "$owner")" --clear-groups "$imp" exec none 0 2>&1 |
		grep -q 'invalid json input'
}
# usage: missing. Says what is not set up here (doc/testing.md), if anything is.
missing() {
	test_have_prereq UNITS && test_have_prereq CONNECTOR || echo "a user systemd, and the connector"
	[ "$(id -u)" = 0 ] || echo "root"
	[ -u "$imp" ] || echo "$imp, setuid"
	flux version | grep -q libflux-security || echo "flux-core with flux-security"
	munge -n </dev/null 2>/dev/null | unmunge >/dev/null 2>&1 || echo "munged"
	for user in "$owner" "$guest"; do
		id -u "$user" >/dev/null 2>&1 || echo "the user $user"
	done
	imp_allows 2>/dev/null || echo "an IMP that lets $owner run shells for others (imp/conf.d)"
}
need_command
lacks=$(missing | head -n 1)
if [ -n "$lacks" ]; then
	skip_all="needs $lacks"
	test_done
fi

# The owner's systemd and brokers, beside root's. Both users come by here.
chmod 755 "$TMPDIR" && chmod 755 . && chmod -R go+rX "$TMPDIR/connectors" "$TMPDIR/modules" "$TMPDIR/modprobe"
install -d -o "$owner" site
install -d -o "$guest" guest
mkfifo -m 666 site/commands site/answers
env -u DBUS_SESSION_BUS_ADDRESS -u XDG_RUNTIME_DIR TMPDIR="$PWD/site" SYSTEMD_TEST_USER="$owner" \
	"$top/tests/user-systemd" flux python "$here/imp-site.py" "$imp" "$PWD/site" >site.log 2>&1 &
site=$!
exec 7<>site/commands 8<>site/answers

# usage: tell COMMAND. The site obeys it; prints the answer.
tell() {
	local answer
	echo "$1" >&7 && read -r -t "$patience" answer <&8 && echo "$answer"
}
as_guest() {
	(cd guest && setpriv --reuid "$guest" --regid "$(id -g "$guest")" --clear-groups \
		env -u TMPDIR HOME=/tmp USER="$guest" LOGNAME="$guest" FLUX_URI="$uri" "$@")
}
guest_clean() {
	as_guest flux job wait-event -q -t "$patience" "$1" clean
}
# usage: gated NAME. Submits a job whose tasks say a line, wait at a gate each, and say another.
gated() {
	local name=$1 rank
	for rank in 0 1 2; do
		mkfifo -m 666 "guest/$name.$rank" || return 1
	done
	id=$(as_guest flux submit -N3 -n3 sh -c "
		echo before \$FLUX_TASK_RANK; cat $name.\$FLUX_TASK_RANK; echo after \$FLUX_TASK_RANK; exit 3") &&
		as_guest flux job wait-event -q -t "$patience" "$id" start
}
# usage: passes NAME. Opens the gates. The job ends as it would have, and no line is missing.
passes() {
	local name=$1 rank
	for rank in 0 1 2; do
		timeout "$patience" sh -c ": >guest/$name.$rank" || return 1
	done
	guest_clean "$id" &&
		test_expect_code 3 as_guest flux job status "$id" &&
		as_guest flux job attach "$id" 2>errors | sort >lines
	printf "%s\n" "after 0" "after 1" "after 2" "before 0" "before 1" "before 2" >expected &&
		test_cmp expected lines
}
nothing_rests() {
	test "$(tell rests)" = "" && ! pgrep -u "$guest" -f "flux-shell|sleep inf"
}

test_expect_success 'the site starts' '
	test_when_finished "cat site.log" &&
	read -r -t "$patience" uri <&8
'
test_expect_success 'a guest runs a job as himself on all ranks' '
	as_guest flux run -N3 -n3 id -un >users &&
	test "$(sort -u users)" = "$guest" &&
	test "$(wc -l <users)" = 3
'
test_expect_success 'its status is true' '
	id=$(as_guest flux submit -N3 -n3 sh -c "exit \$FLUX_TASK_RANK") &&
	guest_clean "$id" &&
	test_expect_code 2 as_guest flux job status "$id"
'
test_expect_success 'he cancels it' '
	id=$(as_guest flux submit -N3 -n3 sleep inf) &&
	as_guest flux job wait-event -q -t "$patience" -p exec "$id" shell.start &&
	as_guest flux cancel "$id" &&
	guest_clean "$id" &&
	test_expect_code 143 as_guest flux job status "$id"
'
test_expect_success 'a job that ignores SIGTERM ends, too' '
	mkfifo -m 666 guest/deaf &&
	id=$(as_guest flux submit -N1 sh -c "trap \"\" TERM; echo >deaf; while :; do sleep inf; done") &&
	timeout "$patience" cat guest/deaf &&
	as_guest flux cancel "$id" &&
	guest_clean "$id" &&
	test_expect_code 137 as_guest flux job status "$id"
'
test_expect_success 'what a stopped IMP does not end the kernel ends, and nothing is drained' '
	id=$(as_guest flux submit -N1 sleep inf) &&
	as_guest flux job wait-event -q -t "$patience" "$id" start &&
	pkill -STOP -f "^$imp exec" &&
	as_guest flux cancel "$id" &&
	guest_clean "$id" &&
	nothing_rests
'
test_expect_success 'so it does with what forks without end behind its shell' '
	mkfifo -m 666 guest/moves guest/moves.on && cp "$here/mover.py" guest &&
	id=$(as_guest flux submit -N1 sh -c "python3 mover.py moves; cat moves.on") &&
	timeout "$patience" cat guest/moves &&
	pkill -STOP -f "^$imp exec" &&
	timeout "$patience" sh -c ": >guest/moves.on" &&
	as_guest flux cancel "$id" &&
	guest_clean "$id" &&
	nothing_rests && ! pgrep -u "$guest" -f mover.py
'
test_expect_success 'a time limit ends it, with its reason' '
	id=$(as_guest flux submit -N3 -n3 -t 1s sleep inf) &&
	guest_clean "$id" &&
	as_guest flux job eventlog "$id" | grep "exception type=\"timeout\""
'
test_expect_success 'what a guest may not do is refused' '
	id=$(as_guest flux submit --setattr=system.exec.method=rexec true) &&
	guest_clean "$id" &&
	as_guest flux job eventlog "$id" | grep exception
'
test_expect_success 'his shells ask the rank above them about their job' '
	gated informed &&
	test "$(tell watches)" = "3 0 0" &&
	passes informed
'
test_expect_success 'he may look at it, and nobody else' '
	cp "$program" guest/job-exec-rs &&
	gated looked &&
	as_guest ./job-exec-rs status "$id" >status &&
	grep "$id" status &&
	as_guest ./job-exec-rs units --all >units &&
	test "$(grep -c "${id#?}" units)" = 3 &&
	as_guest ./job-exec-rs logs "$id" &&
	test_must_fail as_guest flux module stats --clear job-exec &&
	passes looked
'
test_expect_success 'the owner sees that it is contained, and has it stand still and go on' '
	gated frozen &&
	tell "run job-exec-rs doctor --jobs $id --all" >said && cat said && grep "status=0$" said &&
	tell "run job-exec-rs freeze $id" >said && cat said && grep "status=0$" said &&
	tell "run job-exec-rs units --all -no {state} $id" >said && cat said &&
	grep "^frozen frozen frozen status=0$" said &&
	tell "run job-exec-rs thaw $id" >said && cat said && grep "status=0$" said &&
	passes frozen
'
test_expect_success 'a reload of all modules is not noticed' '
	gated reloaded &&
	test "$(tell reload)" = done &&
	passes reloaded
'
test_expect_success 'nor is the death of all brokers' '
	gated killed &&
	test "$(tell restart)" = done &&
	passes killed
'
test_expect_success 'a guest runs jobs after that' '
	as_guest flux run -N3 -n3 true
'
test_expect_success 'nothing is left' '
	await nothing_rests
'
exec 7>&- 8>&-
wait "$site"
test_done
