//! The first part of `job-exec-rs demo`: a job outlives its instance.
//!
//! The instance is a process of its own ([`super::life`]). The story reads what it tells, kills it,
//! looks at the units without it, and begins another life on the same directory. Nothing here
//! depends on time: each step waits for what it shows. The job's commands print lines until a file
//! tells them to end.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use job_exec_rs::port::supervisor::Method;
use job_exec_rs::proto::{
    BrokerRank, Idset, InstanceId, JobId, Stream, UnitName, WaitStatus, decode_eventlog,
};
use job_exec_rs_command::embedded::{Instance, temporary};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use rustix::process::{PidfdFlags, pidfd_open};

use super::failure::Failure;
use super::interrupts::Interrupts;
use super::life::{self, Life};
use super::story;
pub(super) use real::flux;
use seen::Seen;

mod real;
mod seen;

/// What each rank runs. `$0` is the beginning of the name of the file that ends a rank. The pause
/// is for the reader of the story: a rank prints a few lines between two steps, not thousands.
const SCRIPT: &str = "\
n=0
until [ -e \"$0-$FLUX_TASK_RANK\" ]; do n=$((n + 1)); echo \"line $n\"; sleep 0.4; done
echo \"the end, after $n lines\"
[ $FLUX_TASK_RANK -lt $((FLUX_JOB_SIZE - 1)) ] || exit 7";
/// The status of the last rank.
const STATUS: i32 = 7;
/// Lines that each rank has in the KVS before the kill.
const LINES_BEFORE: usize = 3;

/// The temporary directory. All is in there.
struct Place {
    path: PathBuf,
    ranks: u32,
    /// Nothing of the job is left.
    settled: bool,
}

impl Place {
    fn make(ranks: u32) -> Result<Self, Failure> {
        let path = temporary().map_err(Failure::new)?;
        let path = path.canonicalize().map_err(Failure::new)?;
        Ok(Self { path, ranks, settled: false })
    }

    fn state(&self) -> PathBuf {
        self.path.join("state")
    }

    /// The beginning of the name of the file that ends a rank.
    fn end(&self) -> PathBuf {
        self.path.join("end")
    }

    fn end_rank(&self, rank: u32) -> Result<(), Failure> {
        fs::write(format!("{}-{rank}", self.end().display()), "").map_err(Failure::new)
    }

    /// The file that the shell of a unit writes to.
    fn output(&self, unit: &UnitName) -> PathBuf {
        self.state().join(format!("rank-{}", unit.rank())).join(format!("{}.out", unit.stem()))
    }

    /// The last rank. It ends while there is no instance.
    fn last(&self) -> u32 {
        self.ranks - 1
    }

    fn identity(&self) -> InstanceId {
        InstanceId::new(&self.state().to_string_lossy(), nix::unistd::getuid().as_raw())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.settled
            && let Ok(instance) =
                Instance::start(&life::config(&self.state(), self.ranks, false), |_| ())
        {
            // It stops what an interrupted story has left running.
            instance.stop();
        }
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove it");
        }
    }
}

/// Whether units can be started here.
pub(super) fn can_be(ranks: u32) -> Result<(), Failure> {
    let mut place = Place::make(ranks)?;
    let started = Instance::start(&life::config(&place.state(), ranks, false), |_| ());
    place.settled = true;
    started.map(|instance| drop(instance.stop())).map_err(Failure::new)
}

/// Tells the story.
pub(super) fn crash(ranks: u32) -> Result<(), Failure> {
    let place = Place::make(ranks)?;
    let interrupts = Interrupts::start()?;
    let mut seen = Seen::default();
    let before = first_life(&place, &interrupts, &mut seen)?;
    nobody_there(&place, &seen, &before)?;
    second_life(&place, &interrupts, &mut seen, &before)?;
    check(place, &seen, &before)
}

/// The main process of each unit, and systemd's id of this one start of it.
type Processes = BTreeMap<UnitName, (u32, String)>;

fn first_life(
    place: &Place,
    interrupts: &Interrupts,
    seen: &mut Seen,
) -> Result<Processes, Failure> {
    chapter(
        &format!("A job on {} ranks", place.ranks),
        &format!("Each rank runs, as a unit of systemd --user:\n\n{}", indented(SCRIPT)),
    )?;
    let end = place.end();
    let command = ["sh", "-c", SCRIPT, &end.to_string_lossy()];
    let mut life = Life::begin(&place.state(), place.ranks, &command, interrupts)?;
    let all = 0..place.ranks;
    follow(&mut life, interrupts, seen, |seen| {
        let has_written = |rank| seen.lines.get(&rank).is_some_and(|n| *n >= LINES_BEFORE);
        seen.starts > 0 && all.clone().all(has_written)
    })?;
    let before = processes(seen.units.keys())?;
    line("")?;
    story::units(&mut io::stdout(), Method::Systemd, &seen.units).map_err(stdout_gone)?;
    chapter(
        "Everything is killed",
        "One process is all brokers, with the supervisors, the job manager and the KVS.",
    )?;
    line(&format!("           kill -9 {}", life.pid()))?;
    life.kill()?;
    // It had told more than was read.
    while let Ok(Some(event)) = life.next() {
        seen.take(&event).map_err(stdout_gone)?;
    }
    Ok(before)
}

/// What the processes do without an instance.
fn nobody_there(place: &Place, seen: &Seen, before: &Processes) -> Result<(), Failure> {
    chapter("Nobody is there", "The units run on, with the same processes:")?;
    story::units(&mut io::stdout(), Method::Systemd, &seen.units).map_err(stdout_gone)?;
    if processes(seen.units.keys())? != *before {
        return Err(Failure("these are other processes than before".to_string()));
    }
    await_output(place, seen.units.keys())?;
    line("           each has written another line to its file")?;
    let ends = seen.units.iter().filter(|(unit, _)| unit.rank() == BrokerRank(place.last()));
    let ends: BTreeMap<UnitName, u32> = ends.map(|(unit, pid)| (unit.clone(), *pid)).collect();
    line(&format!("           rank {} ends with {STATUS}, and nobody sees it:", place.last()))?;
    let pids: Vec<u32> = ends.values().copied().collect();
    await_end(&pids, || place.end_rank(place.last()))?;
    story::units(&mut io::stdout(), Method::Systemd, &ends).map_err(stdout_gone)
}

fn second_life(
    place: &Place,
    interrupts: &Interrupts,
    seen: &mut Seen,
    before: &Processes,
) -> Result<(), Failure> {
    chapter("It is started again", "All that it has is what the first life left on the disk.")?;
    let lines = seen.lines.clone();
    seen.told.clear();
    let mut life = Life::begin(&place.state(), place.ranks, &[], interrupts)?;
    let others = 0..place.last();
    follow(&mut life, interrupts, seen, |seen| {
        let has_more = |rank| seen.lines.get(&rank) > lines.get(&rank);
        let is_told = |rank| seen.told.iter().any(|unit| unit.rank() == BrokerRank(rank));
        let is_found = || others.clone().all(|rank| has_more(rank) && is_told(rank));
        seen.starts > 1 || (seen.reattached && is_found())
    })?;
    if seen.starts > 1 {
        return Err(Failure("the job was started a second time".to_string()));
    }
    let still = before.iter().filter(|(unit, _)| unit.rank().0 < place.last());
    let still: Processes = still.map(|(unit, process)| (unit.clone(), process.clone())).collect();
    let is_told = |(unit, (pid, _)): (&UnitName, &(u32, String))| seen.units.get(unit) == Some(pid);
    if processes(still.keys())? != still || !still.iter().all(is_told) {
        return Err(Failure("it has found other processes than before".to_string()));
    }
    let found = seen.units.iter().filter(|(unit, _)| still.contains_key(unit));
    let found: BTreeMap<UnitName, u32> = found.map(|(unit, pid)| (unit.clone(), *pid)).collect();
    if !found.is_empty() {
        line("\n           It has found the same processes, with what they wrote meanwhile:\n")?;
        story::units(&mut io::stdout(), Method::Systemd, &found).map_err(stdout_gone)?;
        line("           these are told to end")?;
    }
    for rank in others {
        place.end_rank(rank)?;
    }
    while let Some(event) = life.next()? {
        seen.take(&event).map_err(stdout_gone)?;
    }
    uninterrupted(interrupts)?;
    if life.end()? { Ok(()) } else { Err(Failure("the second life has failed".to_string())) }
}

/// Takes events until `is_enough`.
fn follow(
    life: &mut Life<'_>,
    interrupts: &Interrupts,
    seen: &mut Seen,
    is_enough: impl Fn(&Seen) -> bool,
) -> Result<(), Failure> {
    while !is_enough(seen) {
        let event = life.next()?;
        uninterrupted(interrupts)?;
        let event = event.ok_or_else(|| Failure("the instance has ended too early".into()))?;
        seen.take(&event).map_err(stdout_gone)?;
    }
    Ok(())
}

fn uninterrupted(interrupts: &Interrupts) -> Result<(), Failure> {
    if interrupts.has_come() { Err(Failure("interrupted".to_string())) } else { Ok(()) }
}

fn processes<'a>(units: impl Iterator<Item = &'a UnitName>) -> Result<Processes, Failure> {
    let process = |unit: &UnitName| {
        let found = story::main_process(unit).map_err(Failure::new)?;
        Ok((unit.clone(), found))
    };
    units.map(process).collect()
}

/// Waits until each unit has written to its output file.
fn await_output<'a>(
    place: &Place,
    units: impl Iterator<Item = &'a UnitName>,
) -> Result<(), Failure> {
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC).map_err(Failure::new)?;
    let mut awaited = Vec::new();
    for unit in units {
        let path = place.output(unit);
        let watch = inotify.add_watch(&path, AddWatchFlags::IN_MODIFY);
        awaited.push(watch.map_err(|errno| Failure(format!("{}: {errno}", path.display())))?);
    }
    while !awaited.is_empty() {
        let events = inotify.read_events().map_err(Failure::new)?;
        awaited.retain(|watch| events.iter().all(|event| event.wd != *watch));
    }
    Ok(())
}

/// Waits until processes have ended. `begin` makes them end.
fn await_end(pids: &[u32], begin: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    let open = |pid: &u32| {
        let pid = i32::try_from(*pid).ok().and_then(rustix::process::Pid::from_raw);
        let pid = pid.ok_or_else(|| Failure("no process is known".to_string()))?;
        pidfd_open(pid, PidfdFlags::empty()).map_err(Failure::new)
    };
    let open: Vec<_> = pids.iter().map(open).collect::<Result<_, _>>()?;
    begin()?;
    for pidfd in &open {
        let mut ended = [PollFd::new(std::os::fd::AsFd::as_fd(pidfd), PollFlags::POLLIN)];
        while let Err(errno) = poll(&mut ended, PollTimeout::NONE) {
            if errno != nix::errno::Errno::EINTR {
                return Err(Failure::new(errno));
            }
        }
    }
    Ok(())
}

/// Looks whether all is as it must be, and says so.
fn check(mut place: Place, seen: &Seen, before: &Processes) -> Result<(), Failure> {
    let units = &seen.units;
    chapter(
        "What has become of it",
        &format!("{}:", story::question(Method::Systemd, &place.identity())),
    )?;
    let mut wrong = story::left_behind(Method::Systemd, &place.identity(), units);
    wrong.extend(files_left(&place));
    if wrong.is_empty() {
        line(&format!("  nothing is left of {} units, nor of their records", units.len()))?;
    }
    line(&format!("  the same processes in both lives: {}", pids(before)))?;
    let (job, rank) = (WaitStatus::exited(STATUS), seen.exits.get(&place.last()).copied());
    if seen.status == Some(job) && rank == Some(job) {
        line(&format!("  the true status: {job}, of rank {}, which ended unseen", place.last()))?;
    } else {
        wrong.push(format!("the status is {:?}, and of the last rank {rank:?}", seen.status));
    }
    wrong.extend(seen.exceptions.iter().map(|text| format!("an exception: {text}")));
    wrong.extend(wrong_releases(&seen.released, place.ranks));
    match lines(&place, seen.id) {
        Ok(lines) => {
            let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
            let lines = lines.join(", ");
            line(&format!("  all output, each line once and in order: {lines} lines"))?;
        }
        Err(error) => wrong.push(error.to_string()),
    }
    place.settled = wrong.is_empty();
    let path = place.path.clone();
    drop(place);
    conclude(&path, wrong)
}

/// The place has to be gone. Says what was wrong.
fn conclude(path: &Path, mut wrong: Vec<String>) -> Result<(), Failure> {
    if path.exists() {
        wrong.push(format!("{} is still there", path.display()));
    }
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Failure(format!("not as it must be:\n  {}", wrong.join("\n  "))))
}

/// Records, output files, and files of the job manager.
fn files_left(place: &Place) -> Vec<String> {
    let ranks = (0..place.ranks).map(|rank| format!("rank-{rank}"));
    let directories = ranks.chain(["kvs/manager".to_string()]).map(|name| place.state().join(name));
    let files = directories.flat_map(|directory| fs::read_dir(directory).into_iter().flatten());
    files.flatten().map(|file| format!("{} is left", file.path().display())).collect()
}

/// Each rank is released once.
fn wrong_releases(released: &[String], ranks: u32) -> Option<String> {
    let mut left = Idset::from_range(0..ranks);
    for text in released {
        let these = if text == "all" { left.clone() } else { text.parse().unwrap_or_default() };
        if these.is_empty() || !these.difference(&left).is_empty() {
            return Some(format!("released: {}", released.join(" ")));
        }
        left = left.difference(&these);
    }
    (!left.is_empty()).then(|| format!("never released: {left}"))
}

/// How many lines each rank has in the KVS.
///
/// # Errors
/// If a line is missing, comes twice or not in its place.
fn lines(place: &Place, id: Option<JobId>) -> Result<Vec<usize>, Failure> {
    let id = id.ok_or_else(|| Failure("no job was submitted".to_string()))?;
    let guest = id.kvs_key("guest").replace('.', "/");
    let path = place.state().join("kvs/primary").join(guest).join("exec.eventlog");
    let outputs = outputs(&path)?;
    (0..place.ranks).map(|rank| count(rank, outputs.get(&rank).map_or("", |o| o))).collect()
}

/// What each rank has written, from the job's exec eventlog.
fn outputs(path: &Path) -> Result<BTreeMap<u32, String>, Failure> {
    let text = fs::read_to_string(path);
    let text = text.map_err(|error| Failure(format!("{}: {error}", path.display())))?;
    let mut outputs: BTreeMap<u32, String> = BTreeMap::new();
    for event in decode_eventlog(&text).map_err(Failure::new)? {
        if let Some((rank, Stream::Stdout, _)) = event.logged() {
            let data = event.context.get("data").and_then(|data| data.as_str());
            outputs.entry(rank.0).or_default().push_str(data.unwrap_or_default());
        }
    }
    Ok(outputs)
}

/// Counts the lines of [`SCRIPT`], of which none may be missing.
fn count(rank: u32, output: &str) -> Result<usize, Failure> {
    let numbered = output.lines().filter(|line| line.starts_with("line ")).count();
    let expected = (1..=numbered).map(|n| format!("line {n}\n"));
    let expected = expected.chain([format!("the end, after {numbered} lines\n")]);
    if output == expected.collect::<String>() {
        return Ok(numbered + 1);
    }
    Err(Failure(format!("rank {rank} has not each line once and in order:\n{output}")))
}

fn pids(processes: &Processes) -> String {
    let pids = processes.values().map(|(pid, _)| pid.to_string());
    pids.collect::<Vec<_>>().join(", ")
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}

fn chapter(heading: &str, text: &str) -> Result<(), Failure> {
    story::chapter(&mut io::stdout(), heading, text).map_err(stdout_gone)
}

fn line(text: &str) -> Result<(), Failure> {
    writeln!(io::stdout(), "{text}").map_err(stdout_gone)
}

fn stdout_gone(error: io::Error) -> Failure {
    Failure(format!("stdout: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_must_be_there_once_and_in_order() {
        let count = |output: &str| count(0, output).ok();
        assert_eq!(count("line 1\nline 2\nthe end, after 2 lines\n"), Some(3));
        assert_eq!(count("line 1\nthe end, after 2 lines\n"), None, "one is missing");
        assert_eq!(count("line 1\nline 1\nthe end, after 1 lines\n"), None, "one comes twice");
        assert_eq!(count("line 2\nline 1\nthe end, after 2 lines\n"), None, "out of order");
        assert_eq!(count("line 1\nline 2\n"), None, "the last one is missing");
        assert_eq!(count(""), None);
    }

    #[test]
    fn each_rank_must_be_released_once() {
        let wrong = |released: &[&str]| {
            let released: Vec<String> = released.iter().map(ToString::to_string).collect();
            wrong_releases(&released, 4).is_some()
        };
        assert!(!wrong(&["3", "0-1", "2"]) && !wrong(&["all"]) && !wrong(&["3", "all"]));
        assert!(wrong(&["3", "0-1"]) && wrong(&["0-3", "2"]) && wrong(&["3", "2-3", "0-1"]));
        assert!(wrong(&[]));
    }
}
