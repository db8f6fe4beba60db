# Sourced by every script of this directory, after these two lines:
#
#   test_description='...'
#   instance_size=4         # brokers to run inside; 0: no instance
#
# Sourced outside of Flux, it starts an instance with our module in place of upstream's
# job-exec, runs the script again inside it, and takes down what is left. Sourced inside, it
# loads sharness and the helpers below, in an empty directory of the script's own.
#
#   JOB_EXEC_RS_MODULE  the module; unset: the newest built one; empty: upstream's own
#                       job-exec, to see whether a script expects what upstream does.
#
# Prerequisites for test_expect_success: OURS (not upstream's module), UNITS (ours, and a user
# systemd to run shells in), CONNECTOR (the resume connector was built beside our module).
#
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables that scripts and sharness use or set

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$here/../.." && pwd)
script=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")

# Longest wait for anything, in seconds; only a failing test ever gets near it.
patience=${JOB_EXEC_RS_PATIENCE:-60}
# Longest run of one script; then it is ended, and its instance winds up as usual.
script_limit=${JOB_EXEC_RS_SCRIPT_LIMIT:-600}

# usage: write_config DIRECTORY SIZE
# More cores than this machine has, so that jobs never wait for a free one; noverify because
# of that, and because all brokers have the same hostname. Shells could not bind to them.
write_config() {
    mkdir -p "$1" "$TMPDIR/shell-rc"
    echo 'shell.options["cpu-affinity"] = "off"' >"$TMPDIR/shell-rc/affinity.lua"
    export FLUX_SHELL_RC_PATH=$TMPDIR/shell-rc
    cat >"$1/instance.toml" <<-EOF
	[resource]
	noverify = true
	[fake-resources]
	nnodes = $2
	cores-per-node = 128
	EOF
}

# usage: run_instance [--config DIRECTORY] SIZE COMMAND [ARG...]
# DIRECTORY may hold more configuration. The command sees it as $FLUX_TEST_CONFIG.
run_instance() {
    local config=
    [ "$1" = --config ] && { config=$2; shift 2; }
    : "${config:=$(mktemp -d "$TMPDIR/config-XXXXXX")}"
    write_config "$config" "$1"
    FLUX_TEST_CONFIG=$config flux start --test-size="$1" --config-path="$config" \
        --test-exit-mode=leader --test-exit-timeout=30s "${@:2}"
}

# usage: state_directory RANK
# Where the rank's module keeps records and output. Not in a statedir that the broker has made itself.
state_directory() {
	local rank=$1 name directory
	for name in statedir rundir; do
		directory=$(flux exec -r "$rank" flux getattr $name 2>/dev/null)/job-exec &&
			test -d "$directory" && break
	done
	echo "$directory"
}

# usage: no_records RANK...
# Succeeds if these ranks have forgotten all jobs: those that have ended are kept until a checkpoint
# holds their end.
no_records() {
	local rank
	for rank; do
		test -z "$(ls "$(state_directory "$rank")"/*.record 2>/dev/null)" || return 1
	done
}

# Names of all units that could be a shell's.
all_units() {
    systemctl --user list-units --all --plain --no-legend '*shell-*' '*prolog-*' '*epilog-*' \
        2>/dev/null | awk '{print $1}'
}

# Names of all slices that could be of a shell's unit.
all_slices() {
    systemctl --user list-units --all --plain --no-legend '*shell_*.slice' 2>/dev/null | awk '{print $1}'
}

# ---- outside of the instance -------------------------------------------------------------

# One line, and the whole script is skipped.
skip_all() {
    echo "1..0 # SKIP $*"
    exit 0
}

# Prints the path of the newest built module.
find_module() {
    local target=${CARGO_TARGET_DIR:-$top/target} newest='' path
    for path in "$target"/{debug,release}/libjob_exec_rs.so; do
        [ -e "$path" ] && { [ -z "$newest" ] || [ "$path" -nt "$newest" ]; } && newest=$path
    done
    echo "$newest"
}

choose_module() {
    [ "${JOB_EXEC_RS_MODULE-unset}" = "" ] && return
    JOB_EXEC_RS_MODULE=${JOB_EXEC_RS_MODULE:-$(find_module)}
    [ -n "$JOB_EXEC_RS_MODULE" ] || skip_all "libjob_exec_rs.so is not built"
    [ -r "$JOB_EXEC_RS_MODULE" ] || skip_all "no module $JOB_EXEC_RS_MODULE"
    JOB_EXEC_RS_MODULE=$(realpath "$JOB_EXEC_RS_MODULE")
}

# `flux module load|reload job-exec` and rc1 both take the first job-exec.so on the module
# path; rc1 learns from a modprobe drop-in that it belongs on every rank.
swap_module() {
    mkdir -p "$TMPDIR/modules" "$TMPDIR"/modprobe/{modprobe,rc1,rc3}.d
    cp "$top/command/src/rc1.py" "$TMPDIR/modprobe/rc1.d/job-exec-rs.py"
    cp "$top/command/src/rc3.py" "$TMPDIR/modprobe/rc3.d/job-exec-rs.py"
    cp "$1" "$TMPDIR/modules/job-exec.so"
    printf '[job-exec]\nranks = "all"\n' >"$TMPDIR/modprobe/modprobe.d/job-exec.toml"
    export FLUX_MODULE_PATH_PREPEND=$TMPDIR/modules
    export FLUX_MODPROBE_PATH_APPEND=$TMPDIR/modprobe
}

# libflux finds resume:// in its own directory, or here.
put_connector() {
    local library
    library=$(dirname "$1")/libresume.so
    [ -r "$library" ] || return
    mkdir -p "$TMPDIR/connectors"
    cp "$library" "$TMPDIR/connectors/resume.so"
    export FLUX_CONNECTOR_PATH=$TMPDIR/connectors:$(flux config builtin connector_path)
}

# Processes of the instance; the mark is in their environment, and not in ours.
our_processes() {
    grep -lzxsF "JOB_EXEC_RS_RUN=$TMPDIR" /proc/[0-9]*/environ | cut -d/ -f3
}

# Whether the instance left nothing behind, after a moment for it to go; what it did is
# reported and ended, so that the next script does not meet it.
nothing_left() {
    local processes units name
    # 30 * 0.1 s
    for _ in $(seq 30); do
        processes=$(our_processes)
        units=$(comm -13 <(echo "$1" | sort) <({ all_units; all_slices; } | sort))
        [ -z "$processes$units" ] && return
        sleep 0.1
    done
    for name in $units; do
        echo "# unit left behind: $name"
        # Only on a bus that is ours alone: elsewhere it can be somebody's job.
        [ -z "${USER_SYSTEMD_CGROUP:-}" ] || {
            systemctl --user kill -s KILL "$name"
            systemctl --user stop "$name"
            systemctl --user reset-failed "$name"
        } 2>/dev/null
    done
    for name in $processes; do
        echo "# process left behind: $name $(tr '\0' ' ' 2>/dev/null <"/proc/$name/cmdline")"
        kill -KILL "$name" 2>/dev/null
    done
    return 1
}

# First of two rounds: is it possible here at all? And a systemd around the rest.
if [ -z "${JOB_EXEC_RS_STAGE:-}" ]; then
    command -v flux >/dev/null || skip_all "flux is not in PATH"
    command -v jq >/dev/null || skip_all "jq is not installed"
    [ -r /usr/share/sharness/sharness.sh ] || skip_all "sharness is not installed"
    choose_module
    export JOB_EXEC_RS_MODULE
    export JOB_EXEC_RS_STAGE=outside
    if why=$("$top/tests/user-systemd" true 2>&1); then
        exec "$top/tests/user-systemd" bash "$script" "$@"
    fi
    echo "# $why"
    exec bash "$script" "$@"
fi

# Second: the instance.
if [ "$JOB_EXEC_RS_STAGE" = outside ]; then
    # Short, for the brokers' sockets are below it.
    TMPDIR=$(mktemp -d /tmp/jer-XXXXXX) || exit 1
    export TMPDIR
    trap 'rm -rf "$TMPDIR"' EXIT
    export JOB_EXEC_RS_STAGE=inside
    [ -z "$JOB_EXEC_RS_MODULE" ] || swap_module "$JOB_EXEC_RS_MODULE"
    [ -z "$JOB_EXEC_RS_MODULE" ] || put_connector "$JOB_EXEC_RS_MODULE"
    # The test has nothing to do with an instance or a job that this may have been started in.
    unset FLUX_URI FLUX_JOB_ID FLUX_KVS_NAMESPACE SLURM_JOB_ID PBS_JOBID LSB_JOBID
    before=$(all_units; all_slices)
    inside=(env "JOB_EXEC_RS_RUN=$TMPDIR" timeout -k 10 "$script_limit" bash "$script" "$@")
    if [ "$instance_size" -gt 0 ]; then
        run_instance "$instance_size" "${inside[@]}"
    else
        "${inside[@]}"
    fi
    status=$?
    nothing_left "$before" || status=1
    exit "$status"
fi

# ---- inside ------------------------------------------------------------------------------

# sharness would work below the current directory, in a path with a space.
SHARNESS_TEST_SRCDIR=$here
SHARNESS_TEST_DIRECTORY=$TMPDIR
root=$TMPDIR
# shellcheck source=/dev/null
. /usr/share/sharness/sharness.sh
# A command of a test that is not joined with `&&` to the next is an error: its failure would be
# lost. sharness looks at each test that runs.
chain_lint=t
cd "$(mktemp -d "$TMPDIR/work-XXXXXX")" || exit 1

if [ -n "$JOB_EXEC_RS_MODULE" ]; then
    test_set_prereq OURS
    systemctl --user list-units >/dev/null 2>&1 && test_set_prereq UNITS
    [ -e "$TMPDIR/connectors/resume.so" ] && test_set_prereq CONNECTOR
fi

# usage: need_program
# Sets $program to our command beside our module; without one the script is skipped.
need_program() {
    program=
    [ -z "$JOB_EXEC_RS_MODULE" ] || program=$(dirname "$JOB_EXEC_RS_MODULE")/job-exec-rs
    if ! [ -x "${program:-/nonexistent}" ]; then
        # shellcheck disable=SC2034 # test_done reads it
        skip_all="needs our program beside our module"
        test_done
    fi
}

# usage: need_command
# The same; flux(1) then has it as `flux job-exec-rs`.
need_command() {
    need_program
    mkdir cmd
    ln -s "$(realpath "$program")" cmd/flux-job-exec-rs
    export FLUX_EXEC_PATH_PREPEND=$PWD/cmd
}

# usage: wait_event [OPTION...] JOBID EVENT
wait_event() {
    flux job wait-event -t "$patience" "$@"
}

# usage: job_events JOBID
# Names only, one per line, without the memo of what the job has used, which not every method measures.
# A hold of the service is left out if it has ended: whether a job gets
# one depends on whether a checkpoint is made while the job is in CLEANUP.
job_events() {
    flux job eventlog -f json "$1" | jq -rn '
	def is_hold(name): .name == name and .context.description == "job-exec-rs";
	[inputs] as $all
	| ([$all[] | select(is_hold("epilog-start"))] | length) as $starts
	| ([$all[] | select(is_hold("epilog-finish"))] | length) as $ends
	| $all[] | select(.name != "memo")
	| select($starts != $ends or (is_hold("epilog-start") or is_hold("epilog-finish") | not))
	| .name'
}
# usage: exec_events JOBID. Names only, one per line.
exec_events() {
    flux job eventlog -f json -p exec "$1" | jq -r .name
}

# usage: contexts [-p exec] JOBID EVENT. Contexts of all such events, sorted JSON, one per line.
contexts() {
    local event=${*: -1}
    flux job eventlog -f json "${@:1:$#-1}" |
        jq -cS --arg name "$event" 'select(.name == $name) | .context'
}

# usage: stats_of JOBID. What the module on the job's first rank, its leader (upstream: on rank
# 0), has in its stats for the job; fails if it does not know it.
stats_of() {
    local leader=0
    test_have_prereq OURS && leader=$(flux jobs -no '{ranks}' "$1" | expand_idsets | head -n 1)
    flux exec -r "$leader" flux module stats job-exec |
        jq -e --arg id "$(flux job id --to=f58plain "$1")" '.jobs[$id] // .jobs["ƒ" + $id[1:]]'
}

# Members of the idsets on stdin, one per line, in the order given.
expand_idsets() {
    flux python -c 'import sys; from flux.idset import IDset
for line in sys.stdin:
    for member in IDset(line.strip()):
        print(member)'
}

# usage: await COMMAND...
# For what no event tells. The command may be tried often.
await() {
    # $patience * 10 * 0.1 s
    for _ in $(seq $((patience * 10))); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.1
    done
    echo "gave up waiting for: $*" >&2
    return 1
}

# usage: units_of JOBID. The job's units, one per line, in order of rank.
units_of() {
    all_units | grep -- "shell-[0-9]*-$(flux job id --to=f58plain "$1")-" | sort -V
}

# No unit of the job, or of any job, is there any more. Units go just after the job ended.
no_units_now() {
    [ -z "$(if [ $# -gt 0 ]; then units_of "$1"; else all_units; fi)" ]
}
assert_no_units() {
    local unit
    await no_units_now "$@" && return
    for unit in $(all_units); do
        systemctl --user show -p Id -p ActiveState -p SubState -p MainPID -p ExecMainStatus "$unit" |
            xargs
    done
    return 1
}

# Gates: a job waits at one (with `cat GATE`) until the test opens it, or the test waits at one
# until a job comes there (with `echo >GATE`). They are FIFOs, so that neither side ever polls:
# opening one end waits for the other.
gate() {
    mkfifo "$@"
}
open_gate() {
    local name
    for name; do
        timeout "$patience" bash -c ': >"$1"' - "$name" || return 1
    done
}
wait_gate() {
    timeout "$patience" cat "$@"
}

# usage: dummy_submit [OPTION...] SCRIPT
# Submits a job that runs bash SCRIPT in place of flux-shell on every rank of it, between
# its start barriers and its end; see dummy-shell for what SCRIPT has.
dummy_submit() {
    flux submit --setattr=system.exec.job_shell="$here/dummy-shell" "$@"
}

# usage: guest_submit USERID OPTION... COMMAND
# The owner submits the guest's job, because its signature is not real.
guest_submit() {
    flux submit --dry-run "${@:2}" | flux python "$here/sign-none.py" "$1" >signed &&
        FLUX_HANDLE_USERID=$1 flux job submit --flags=signed signed
}

# usage: configure [LINE...]. They are the table [exec] from now on.
configure() {
    printf '%s\n' '[exec]' "$@" >"$FLUX_TEST_CONFIG/exec.toml" && flux config reload
}

# usage: rpc [--no-response] [RANK] TOPIC JSON
# Prints the response, or fails with "errno NAME: text" on stderr.
rpc() {
    flux python "$here/rpc.py" "$@"
}
