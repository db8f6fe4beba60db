//! Bugs that other programs, or this one, really had.

/// A bug: what is replaced in the sources to have it.
pub(super) struct Bug {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    /// Who finds it.
    pub(super) oracle: &'static str,
    /// The first seed of the default profile in which that oracle finds it.
    pub(super) seed: u64,
    /// A file, text that stands in it once, and the text instead.
    pub(super) edits: &'static [(&'static str, &'static str, &'static str)],
}

pub(super) const BUGS: &[Bug] = &[
    Bug {
        name: "AdoptionByPid",
        what: "after the node has booted again, a process with the recorded pid is the shell",
        oracle: "always-an-end",
        seed: 161,
        edits: &[(
            "src/supervisor/core.rs",
            "if found.record.left {",
            "if !this_boot && let Some(Started { pid, .. }) = found.record.started {
                found.program = Program::Running;
                return (self.sink)(UnitEvent::Started { pid }.of(unit));
            }
            if found.record.left {",
        )],
    },
    Bug {
        name: "AnotherReleaseIsFatal",
        what: "a rank that is another release fails the job at once",
        oracle: "unknown-is-not-dead",
        seed: 5,
        edits: &[(
            "src/machine/leader/agents.rs",
            "let survives = self.shells_survive(cx);",
            "if let Some(reason) = end.refusal() {
                self.fail(cx, reason, out);
            }
            let survives = self.shells_survive(cx);",
        )],
    },
    Bug {
        name: "BarrierAfterRestart",
        what: "a shell that waits in the barrier is counted again when its module is back",
        oracle: "barrier",
        seed: 5,
        edits: &[(
            "src/machine/agent/barrier.rs",
            "self.clients.place(self.entered.max(self.found), entry)",
            "self.clients.place(self.entered.max(self.found), None)",
        )],
    },
    Bug {
        name: "BarrierJudgedUnheard",
        what: "a new leader fails the barrier before all ranks have said how often their shells \
               have entered, and does not count what shells have left",
        oracle: "barrier",
        seed: 1156,
        edits: &[
            (
                "src/machine/leader/reason.rs",
                "if self.is_listening() {\n            return;",
                "if self.is_listening() { self.judge_barrier(cx, out); return;",
            ),
            ("src/machine/leader/barrier.rs", "self.passed = self.passed.max(count);", ""),
        ],
    },
    Bug {
        name: "CleanupUndelayed",
        what: "a job may come to CLEANUP while a checkpoint is being prepared",
        oracle: "always-an-end",
        seed: 113,
        edits: &[(
            "src/machine/coordinator/delayed.rs",
            "cx.shells_survive && (closed && ends || is_behind)",
            "cx.shells_survive && (closed && ends || is_behind) && false",
        )],
    },
    Bug {
        name: "CollectBeforeDurable",
        what: "a unit is collected before its status is on disk",
        oracle: "true-status",
        seed: 5,
        edits: &[(
            "src/supervisor/core.rs",
            "if known.record.exited != Some(status) {",
            "if false {",
        )],
    },
    Bug {
        name: "CommitsOfEndedLost",
        what: "commits that an ended shell has left are not done again after a rollback",
        oracle: "commit-once",
        seed: 45,
        edits: &[(
            "src/machine/agent/client_commits.rs",
            "// A new leader is a reason to try as often again.",
            "if true { continue; }",
        )],
    },
    Bug {
        name: "CommitsPassedOn",
        what: "a client's commits are for any rank: a broker that unloads its KVS passes them on",
        oracle: "commit-once",
        seed: 90,
        edits: &[(
            "simulator/src/world/links.rs",
            "return waiter.packet.rank() == Some(rank);",
            "return false;",
        )],
    },
    Bug {
        name: "DeafnessUnnoticed",
        what: "a bus that refuses the rule for all units counts as one that grants it",
        oracle: "no-orphan",
        seed: 4,
        edits: &[(
            "src/supervisor/tracker/link.rs",
            "if self.hearing == Hearing::Nothing {",
            "if true {",
        )],
    },
    Bug {
        name: "DegradedUntold",
        what: "a job starts on degraded nodes before its eventlog tells of them",
        oracle: "degraded-told",
        seed: 47,
        edits: &[
            ("src/machine/leader/tolerance.rs", "if news.is_empty() {", "if true {"),
            (
                "src/machine/leader/tolerance.rs",
                "!is_marked || self.told.ranks.contains_rank(rank)",
                "!is_marked || true",
            ),
        ],
    },
    Bug {
        name: "DoneBeforeOutput",
        what: "the end of a job does not wait for the output of its shells",
        oracle: "nothing-lost",
        seed: 3,
        edits: &[(
            "src/supervisor/core.rs",
            "if known.removal != Removal::Empty || !known.pump(&*self.sink) {",
            "let is_empty = known.removal == Removal::Empty;
             if is_empty { known.pump(&*self.sink); }
             if !is_empty {",
        )],
    },
    Bug {
        name: "DrainUnawaited",
        what: "a rank is released although the resource module has not answered that it is drained",
        oracle: "no-release-while-alive",
        seed: 4,
        edits: &[(
            "src/machine/leader/release.rs",
            "self.undrained = self.undrained.union(&ranks.intersection(&self.held));",
            "",
        )],
    },
    Bug {
        name: "DuplicateStartAfterRollback",
        what: "an ended job is forgotten before a checkpoint holds its end",
        oracle: "true-status",
        seed: 79,
        edits: &[(
            "src/machine/leader/ending.rs",
            "        self.say_ended(out);\n    }",
            "        self.say_ended(out);\n        self.let_go(out);\n    }",
        )],
    },
    Bug {
        name: "EntryBeforeCommits",
        what: "an entry into the barrier counts after a restart although its shell has not said it \
               again",
        oracle: "barrier",
        seed: 57,
        edits: &[(
            "src/machine/agent/barrier.rs",
            "let waits = self.clients.has_name();",
            "let waits = false;",
        )],
    },
    Bug {
        name: "EpilogEarly",
        what: "an epilog does not wait for the end of the shell",
        oracle: "epilog-follows",
        seed: 1,
        edits: &[(
            "src/machine/agent/perilog.rs",
            "&& self.is_shell_over(shell)",
            "&& (self.is_shell_over(shell) || !shell.unit.is_waiting())",
        )],
    },
    Bug {
        name: "FirstRunWrites",
        what: "clients of a run that the KVS has forgotten commit to the next run's guest namespace",
        oracle: "commit-once",
        seed: 8,
        edits: &[("simulator/src/world/links.rs", ".of_run(options.run)", ".of_run(None)")],
    },
    Bug {
        name: "ForgottenLives",
        what: "an agent that nobody leads asks rank 0 about its job only after `peer-timeout`",
        oracle: "no-orphan",
        seed: 14,
        edits: &[(
            "src/machine/agent.rs",
            "cx.now.mono + ASK_SECONDS",
            "cx.now.mono + cx.config.peer_timeout",
        )],
    },
    Bug {
        name: "HangUnnoticed",
        what: "nobody notices that the disk holds the supervisor up",
        oracle: "silence-told",
        seed: 62,
        edits: &[(
            "src/supervisor/pulse.rs",
            "let is_held_up = busy_for >= patience;",
            "let is_held_up = busy_for >= patience && false;",
        )],
    },
    Bug {
        name: "HeldAgain",
        what: "a new coordinator holds a job in CLEANUP that an earlier one holds already",
        oracle: "always-an-end",
        seed: 8,
        edits: &[(
            "src/machine/coordinator/cleaning.rs",
            "if is_held {\n            self.holds.find(id);",
            "if false {",
        )],
    },
    Bug {
        name: "HoldForgotten",
        what: "a checkpoint may have a job in CLEANUP that is not held",
        oracle: "always-an-end",
        seed: 1,
        edits: &[(
            "src/machine/coordinator/hold.rs",
            "if !self.asked.contains(&id) && !self.held.contains(&id) {",
            "if false {",
        )],
    },
    Bug {
        name: "LateWaits",
        what: "the end of a unit waits until the disk takes its status",
        oracle: "drained-for-cause",
        seed: 19,
        edits: &[("src/supervisor/core.rs", "backend.hold(unit);", "")],
    },
    Bug {
        name: "LossUnnoticed",
        what: "nobody asks whether a request to another rank, on which nothing has come, was lost",
        oracle: "always-an-end",
        seed: 3,
        edits: &[(
            "src/machine/node/silence.rs",
            "Some(now.mono + SILENCE_SECONDS));\n        self.name(stream)",
            "None);\n        self.name(stream)",
        )],
    },
    Bug {
        name: "LostSignalAfterReconnect",
        what: "after a reconnect to the bus, the supervisor does not ask what happened meanwhile",
        oracle: "no-orphan",
        seed: 1,
        edits: &[(
            "src/supervisor/tracker/link.rs",
            "            self.ask(Call::Watch(unit));\n        }\n        self.list();",
            "            self.ask(Call::Watch(unit));
            }
            self.ask(Call::Subscribe);
            self.link = Link::Ready;
            self.begin_probes(Vec::new());
            self.start_next();",
        )],
    },
    Bug {
        name: "OomFromStatus",
        what: "a shell that ended by SIGKILL counts as killed because memory was short",
        oracle: "oom-told",
        seed: 1,
        edits: &[(
            "src/machine/leader/rank.rs",
            "set_exited(&mut self, status: Option<WaitStatus>) {",
            "set_exited(&mut self, status: Option<WaitStatus>) {
            if let Some(usage) = self.usage.as_mut().filter(|_| status == Some(WaitStatus(9))) {
                usage.oom_kills = Some(1);
            }",
        )],
    },
    Bug {
        name: "OomSaidTwice",
        what: "a new leader says again that memory was short",
        oracle: "oom-told",
        seed: 8,
        edits: &[(
            "src/machine/leader/opening.rs",
            "known.in_log.oom_told = true;",
            "known.in_log.oom_told = false;",
        )],
    },
    Bug {
        name: "OneWayUnnumbered",
        what: "`write` to the leader shell does not go through a channel, as without the connector",
        oracle: "channel-once",
        seed: 5,
        edits: &[(
            "simulator/src/world/talks.rs",
            "let packet = SimPacket::request(&topic, tag, to, &payload);\n        if !self.send",
            "let mut packet = SimPacket::request(&topic, tag, to, &payload);
             if method == WRITE { packet.push_hop(\"shell\"); }
             if !self.send",
        )],
    },
    Bug {
        name: "OtherManagerStartsAgain",
        what: "a start of which there is no trace is made again by another user manager",
        oracle: "once",
        seed: 808,
        edits: &[(
            "src/port/supervisor.rs",
            "one.is_some() && other.is_some() && one != other",
            "one.is_some() && other.is_some() && one != other && false",
        )],
    },
    Bug {
        name: "PrologRunTwice",
        what: "the record of a prolog is forgotten when the module is back, so it is run again",
        oracle: "script-once",
        seed: 3,
        edits: &[(
            "src/machine/agent/perilog.rs",
            "if stage != Stage::Shell {\n            let script = Script::found",
            "if stage == Stage::Prolog {
                let unit = record.spec.unit.clone();
                return out.push(Effect::Unit(unit, UnitCommand::Forget));
            }
            if stage != Stage::Shell {\n            let script = Script::found",
        )],
    },
    Bug {
        name: "ReasonForgotten",
        what: "the exception for which a shell is ended is not written to the shell's record",
        oracle: "reason-outlives",
        seed: 34,
        edits: &[(
            "src/machine/agent/shell.rs",
            "self.unit.keep(Note::EndReason(reason.clone()), out);",
            "let _ = out;",
        )],
    },
    Bug {
        name: "ReissuedIdAdopted",
        what: "another job's unit is adopted because the id is the same",
        oracle: "barrier",
        seed: 29,
        edits: &[(
            "src/machine/agent.rs",
            "Some(there) if there.shell.digest() != digest =>",
            "Some(there) if there.shell.digest() != digest && false =>",
        )],
    },
    Bug {
        name: "RemovalForgotten",
        what: "a unit that is over, as its record says, is not removed if systemd still has it",
        oracle: "no-orphan",
        seed: 279,
        edits: &[("src/supervisor/unrecorded.rs", "if is_over {", "if false {")],
    },
    Bug {
        name: "ReleaseBeforeEmpty",
        what: "a rank is released when its shell has exited, even if processes are left behind",
        oracle: "no-release-while-alive",
        seed: 7,
        edits: &[(
            "src/machine/agent/shell.rs",
            "UnitEvent::Exited { status } => self.tell_end(Report::Exited { status }),",
            "UnitEvent::Exited { status } => {
                let mut reports = self.tell_end(Report::Exited { status });
                reports.push(Report::Gone);
                reports
            }",
        )],
    },
    Bug {
        name: "ReleaseBeforeEpilog",
        what: "a rank is released before its epilog has ended",
        oracle: "released-behind",
        seed: 1,
        edits: &[(
            "src/machine/agent/perilog.rs",
            "let is_epilog_over = match self.script(Stage::Epilog) {",
            "let is_epilog_over = match self.script(Stage::Epilog) {\n            _ if true => true,",
        )],
    },
    Bug {
        name: "ReleaseUnawaited",
        what: "a checkpoint does not wait until the KVS has the release of a job that has ended",
        oracle: "always-an-end",
        seed: 395,
        edits: &[("src/machine/coordinator/hold.rs", "if !is_held {", "if false {")],
    },
    Bug {
        name: "ReleasedAgain",
        what: "a new coordinator does not look up which ranks the job manager has back",
        oracle: "released-once",
        seed: 2,
        edits: &[(
            "src/machine/coordinator.rs",
            "Ok(released) => job.released = released.intersection(job.start.r.ranks()),",
            "Ok(_) => (),",
        )],
    },
    Bug {
        name: "ScriptKilled",
        what: "a script that goes on after SIGTERM gets SIGKILL",
        oracle: "script-not-killed",
        seed: 4,
        edits: &[(
            "src/machine/agent/script.rs",
            "out.log(Level::Error, text);\n                self.patience = ScriptPatience::Over;",
            "out.log(Level::Error, text);
             self.patience = ScriptPatience::Over;
             self.unit.signal(libc::SIGKILL, true, out);",
        )],
    },
    Bug {
        name: "ScriptStopLost",
        what: "a script that was told to end before it was known to run, or by an earlier life of \
               its module, is not told when it is found",
        oracle: "script-told",
        seed: 6450,
        edits: &[
            (
                "src/machine/agent/script.rs",
                "script.tell_to_end(cx, out);",
                "script.ends_at = Some(cx.now.mono + script.kill_timeout(cx));",
            ),
            ("src/machine/agent/script.rs", "if !self.is_running() {\n            //", "if false {\n//"),
            (
                "src/machine/agent/script.rs",
                "if self.stop.is_some() {\n                    self.tell_to_end(cx, out);",
                "if false {",
            ),
        ],
    },
    Bug {
        name: "ShellBeforeProlog",
        what: "a shell is started when the prolog of its own rank has ended",
        oracle: "prologs-first",
        seed: 4,
        edits: &[(
            "src/machine/agent/perilog.rs",
            "Mode::Prepare => Go::Prepare(shell),",
            "Mode::Prepare => Go::Start(shell),",
        )],
    },
    Bug {
        name: "SilenceUnnoticed",
        what: "nobody notices that systemd does not answer",
        oracle: "no-orphan",
        seed: 12,
        edits: &[("src/supervisor/tracker/patience.rs", "if hangs {", "if hangs && false {")],
    },
    Bug {
        name: "SliceStoppedUnread",
        what: "a unit's slice is stopped when the unit has exited, and read when it is empty",
        oracle: "usage-kept",
        seed: 5,
        edits: &[(
            "src/supervisor/core.rs",
            "self.measure(unit, backend);\n        (self.sink)",
            "backend.drop_usage(unit);\n        (self.sink)",
        )],
    },
    Bug {
        name: "StartWithoutIntent",
        what: "a unit is started with an empty record",
        oracle: "epilog-follows",
        seed: 103,
        edits: &[
            (
                "src/supervisor/records.rs",
                "write_file(self.disk(), &name, IfExists::Fail, &content)?;",
                "write_file(self.disk(), &name, IfExists::Fail, &Vec::new())?;",
            ),
            (
                "src/supervisor/core.rs",
                "let pid = started.pid;\n        let news",
                "if let Ok((file, _)) = self.store.create(&known.record.spec, &self.boot_id, true) {
                    known.file = file;
                }
                let pid = started.pid;
                let news",
            ),
        ],
    },
    Bug {
        name: "StopCounts",
        what: "the time for which a rank was stopped itself counts as time in which others did not \
               answer",
        oracle: "unknown-is-not-dead",
        seed: 33,
        edits: &[(
            "src/machine/away.rs",
            "let is_over = self.counted >= seconds;",
            "let is_over = now - self.since >= seconds;",
        )],
    },
    Bug {
        name: "UnknownIsDead",
        what: "a rank whose broker is gone counts as dead at once, although its shells may live",
        oracle: "unknown-is-not-dead",
        seed: 33,
        edits: &[(
            "src/machine/leader/agents.rs",
            "StreamEnd::BrokerGone if is_lost =>",
            "StreamEnd::BrokerGone =>",
        )],
    },
    Bug {
        name: "UnrecordedIgnored",
        what: "a unit whose record was lost is left alone",
        oracle: "no-orphan",
        seed: 4,
        edits: &[(
            "src/supervisor/unrecorded.rs",
            "let unit = found.unit.clone();",
            "let unit = found.unit.clone();\n        if true { return; }",
        )],
    },
    Bug {
        name: "UnsyncedCounts",
        what: "a checkpoint counts as made before the disk has it",
        oracle: "commit-once",
        seed: 104,
        edits: &[
            (
                "simulator/src/world/service.rs",
                "None => self.after(0.001, 0.3, Item::CheckpointEnds { to, number }),\n            }",
                "None => self.after(0.001, 0.3, Item::CheckpointEnds { to, number }),
                }
                let event = Box::new(Event::Checkpointed(Ok(())));
                self.send(0, 0, Item::Deliver { to, event });",
            ),
            (
                "simulator/src/world/service.rs",
                "self.send(0, 0, Item::Deliver { to, event: Box::new(Event::Checkpointed(Ok(()))) });",
                "",
            ),
        ],
    },
    Bug {
        name: "UnwantedGuestLives",
        what: "a guest's shell that nobody wants gets SIGTERM, and is not killed if it ignores it",
        oracle: "no-orphan",
        seed: 34,
        edits: &[(
            "src/machine/agent/unwanted.rs",
            "let Some(step) = step else { return };",
            "let Some(step) = step.filter(|_| !there.shell.is_multiuser()) else { return };",
        )],
    },
    Bug {
        name: "UsageOfEarlierLife",
        what: "what an earlier life of the module has measured is not told again",
        oracle: "usage-kept",
        seed: 2,
        edits: &[(
            "src/machine/agent/shell.rs",
            "Note::Usage(usage) => shell.remarks.push(Report::Usage(usage)),",
            "Note::Usage(_) => (),",
        )],
    },
    Bug {
        name: "WaitingForgotten",
        what: "no checkpoint is made for jobs that only wait",
        oracle: "waiting-kept",
        seed: 99,
        edits: &[(
            "src/machine/coordinator/checkpoint.rs",
            "note_change(&mut self, cx: Context) {\n        self.touch(cx);",
            "note_change(&mut self, _: Context) {",
        )],
    },
];
