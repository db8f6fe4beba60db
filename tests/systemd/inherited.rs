//! What a shell has of the broker, as its child would.

use std::collections::BTreeMap;
use std::process::Command;

use job_exec_rs::port::supervisor::UnitSpec;
use job_exec_rs::proto::{Stage, UnitName, WaitStatus};

use crate::support::{Harness, RUNS_ON, unit_of};
use crate::{harness, manager_pid, systemctl};

/// Set for a test that runs in a process of its own.
const OWN_PROCESS: &str = "JOB_EXEC_RS_ODD_PROCESS";

/// What a program writes that runs as a unit.
fn told(h: &mut Harness, spec: UnitSpec) -> String {
    let unit = spec.unit.clone();
    h.start_unit(spec);
    h.wait("its exit", |event| {
        use job_exec_rs::port::supervisor::{SupervisorEvent, UnitEvent};
        let is_its = unit_of(event) == Some(&unit);
        match event {
            SupervisorEvent::Unit(_, UnitEvent::Exited { status }) if is_its => Some(*status),
            SupervisorEvent::Unit(_, UnitEvent::Failed(failure)) if is_its => panic!("{failure:?}"),
            _ => None,
        }
    });
    let file = h.config.directory.join(format!("{}.out", unit.stem()));
    std::fs::read_to_string(file).expect("its output")
}

/// A unit that runs this program with these arguments.
fn spec(h: &Harness, job: u64, argv: &[&str]) -> UnitSpec {
    UnitSpec { argv: argv.iter().map(ToString::to_string).collect(), ..h.spec(job, "") }
}

/// The same as a unit of each kind: of a shell, of a guest's, and of a script.
fn of_each_kind(h: &Harness, argv: &[&str]) -> [UnitSpec; 3] {
    let (shell, guest, script) = (spec(h, 1, argv), spec(h, 2, argv), spec(h, 3, argv));
    let unit = UnitName::new(true, guest.rank, guest.job, h.config.instance.clone());
    let guest = UnitSpec { multiuser: true, unit, ..guest };
    let unit = script.unit.of_stage(Stage::Prolog, false);
    [shell, guest, UnitSpec { unit, ..script }]
}

/// Fields of `/proc/PID/status` by name.
fn fields(text: &str) -> BTreeMap<&str, &str> {
    text.lines().filter_map(|line| line.split_once(':')).map(|(k, v)| (k, v.trim())).collect()
}

/// The signals that it ignores. The two that the C library keeps for itself do not count: those
/// whom it starts with posix_spawn(3) ignore them.
fn ignored(status: &BTreeMap<&str, &str>) -> u64 {
    let all = u64::from_str_radix(status["SigIgn"], 16).expect("a mask");
    all & !(0b11 << 31)
}

#[test]
fn a_process_ignores_and_blocks_no_signal() {
    let Some((mut h, _dir)) = harness() else { return };
    for spec in of_each_kind(&h, &["/bin/cat", "/proc/self/status"]) {
        let unit = spec.unit.clone();
        let told = told(&mut h, spec);
        let status = fields(&told);
        assert_eq!(ignored(&status), 0, "{unit} ignores signals");
        for (name, value) in [("SigBlk", "0000000000000000"), ("NoNewPrivs", "0"), ("Seccomp", "0")]
        {
            assert_eq!(status[name], value, "{name} of {unit}");
        }
    }
}

#[test]
fn a_process_has_no_other_descriptor_and_no_terminal() {
    let Some((mut h, _dir)) = harness() else { return };
    for spec in of_each_kind(&h, &["/bin/ls", "/proc/self/fd"]) {
        // The last one is that of the directory.
        assert_eq!(told(&mut h, spec), "0\n1\n2\n3\n");
    }
    for mut spec in of_each_kind(&h, &["/bin/cat", "/proc/self/stat"]) {
        spec.unit = h.unit(7).of_stage(spec.unit.stage(), spec.multiuser);
        let stat = told(&mut h, spec);
        assert_eq!(stat.rsplit(')').next().and_then(|rest| rest.split(' ').nth(5)), Some("0"));
    }
}

/// The user manager's session keyring has what the instance owner keeps there.
#[test]
fn a_guest_does_not_get_the_owners_keys() {
    let Some((mut h, _dir)) = harness() else { return };
    let [_, guest, _] = of_each_kind(&h, &["/bin/cat", "/proc/keys"]);
    let keys = told(&mut h, guest);
    assert!(keys.contains("_ses") && keys.contains("invocation_id"), "{keys}");
}

#[test]
fn an_administrator_can_say_otherwise() {
    let Some((mut h, _dir)) = harness() else { return };
    let mut spec = h.spec(1, RUNS_ON);
    for (name, value) in [
        ("CPUAffinity", "0"),
        ("IgnoreSIGPIPE", "yes"),
        ("LimitNOFILE", "100:200"),
        ("OOMPolicy", "stop"),
        ("TasksMax", "77"),
        ("UMask", "0007"),
    ] {
        spec.properties.insert(name.to_string(), value.to_string());
    }
    h.start_unit(spec);
    let pid = h.started(1);
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
    let (status, limits) = (read("status"), read("limits"));
    let status = fields(&status);
    assert_eq!(ignored(&status), 1 << (libc::SIGPIPE - 1));
    assert_eq!((status["Umask"], status["Cpus_allowed_list"]), ("0007", "0"));
    assert_eq!(limits_of(&limits)["Max open files"], ("100".to_string(), "200".to_string()));
    let name = h.unit(1).to_string();
    let told = systemctl(&["show", "-p", "OOMPolicy", "-p", "TasksMax", &name]);
    assert!(told.contains("OOMPolicy=stop") && told.contains("TasksMax=77"), "{told}");
    h.signal(1, libc::SIGKILL, true);
    assert_eq!(h.exited(1), WaitStatus::signaled(9));
    h.clean(1);
}

/// Soft and hard limits by name, from `/proc/PID/limits`.
fn limits_of(text: &str) -> BTreeMap<String, (String, String)> {
    let rows = text.lines().filter(|line| line.starts_with("Max ") && !line.contains("Soft Limit"));
    let columns = rows.map(|row| {
        let (name, rest) = row.split_at(26);
        let mut values = rest.split_whitespace().map(str::to_string);
        let mut value = || values.next().expect("a limit");
        (name.trim().to_string(), (value(), value()))
    });
    columns.collect()
}

/// The lesser one of two limits.
fn least(a: &str, b: &str) -> String {
    let number = |limit: &str| limit.parse::<u64>().unwrap_or(u64::MAX);
    if number(a) < number(b) { a.to_string() } else { b.to_string() }
}

#[test]
fn a_process_has_what_a_child_of_the_broker_would_have() {
    if harness().is_none() {
        return;
    }
    // 13 of OOM score and 1 CPU are all that somebody without privileges can take.
    let script = "umask 027; ulimit -S -n 500; ulimit -H -n 1000; ulimit -S -s 4096; ulimit -c 0; \
                  echo 1000 >/proc/self/oom_score_adj; exec nice -n 1 taskset -c 0 \"$@\"";
    let output = Command::new("/bin/sh")
        .args(["-c", script, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "inherited::inside_an_odd_process"])
        .env(OWN_PROCESS, "1")
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn inside_an_odd_process() {
    // Only when a_process_has_what_a_child_of_the_broker_would_have runs it.
    if std::env::var_os(OWN_PROCESS).is_none() {
        return;
    }
    let Some((mut h, _dir)) = harness() else { return };
    let files = ["status", "limits", "oom_score_adj", "stat", "coredump_filter"];
    let files = files.map(|file| format!("/proc/self/{file}"));
    let own = files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect::<String>();
    let argv = [&["/bin/cat"], &files.each_ref().map(String::as_str)[..]].concat();
    let managers = std::fs::read_to_string(format!("/proc/{}/limits", manager_pid())).unwrap();
    let managers = limits_of(&managers);
    for spec in of_each_kind(&h, &argv) {
        let unit = spec.unit.clone();
        let told = told(&mut h, spec);
        for name in ["Umask", "Cpus_allowed_list"] {
            assert_eq!(fields(&told)[name], fields(&own)[name], "{name} of {unit}");
        }
        let last = |text: &str| text.lines().rev().take(3).map(str::to_string).collect::<Vec<_>>();
        let [filter, stat, adjust] = &last(&told)[..] else { panic!("{told}") };
        let [own_filter, own_stat, own_adjust] = &last(&own)[..] else { panic!("{own}") };
        assert_eq!((filter, adjust), (own_filter, own_adjust), "{unit}");
        let nice = |stat: &str| stat.rsplit(')').next()?.split(' ').nth(17).map(str::to_string);
        assert_eq!(nice(stat), nice(own_stat), "nice of {unit}");
        // Nobody can be given more than the user manager may have.
        let expected = limits_of(&own).into_iter().map(|(name, (soft, hard))| {
            let most = &managers[&name].1;
            (name, (least(&soft, most), least(&hard, most)))
        });
        assert_eq!(limits_of(&told), expected.collect(), "{unit}");
    }
    for (name, value) in [("OOMPolicy", "continue"), ("TasksMax", "infinity")] {
        h.launch(9, RUNS_ON);
        h.started(9);
        let told = systemctl(&["show", "--value", "-p", name, &h.unit(9).to_string()]);
        assert_eq!(told.trim(), value, "{name}");
        h.signal(9, libc::SIGKILL, true);
        h.exited(9);
        h.clean(9);
    }
}
