//! What prologs and epilogs do: most end well, and soon. Some fail, and some go on for minutes. Some
//! prologs find that their node is degraded.

use job_exec_rs::machine::{Credential, Event, Fault, RequestId, Role, Topic};
use job_exec_rs::proto::{DegradedNodes, JobId, Stage, UnitName, WaitStatus};
use rand::Rng;
use serde_json::json;

use super::{Item, World};
use crate::request::{Asked, Life};
use crate::script::{Mark, Moment, Script};

/// Of so many scripts one fails, one goes on until it is told to end, one does not listen, and some
/// mark their node.
const TROUBLE: u32 = 60;
/// After how many seconds a script asks again that could not mark its node.
const ASK_AGAIN: f64 = 1.0;

/// What happens to scripts later.
pub(crate) enum Step {
    End {
        rank: u32,
        index: usize,
        status: WaitStatus,
    },
    /// A prolog marks its node.
    Mark {
        rank: u32,
        index: usize,
    },
    /// The job manager is asked to post an event.
    Tell {
        from: Life,
        id: JobId,
        nodes: Box<DegradedNodes>,
    },
    /// The KVS has it, if rank 0's broker is still this one.
    Told {
        to: Life,
        id: JobId,
        nodes: Box<DegradedNodes>,
        broker: u32,
    },
}

impl World {
    pub(super) fn handle_step(&mut self, step: Step) {
        match step {
            Step::End { rank, index, status } => self.end_script(rank, index, status),
            Step::Mark { rank, index } => self.mark(rank, index),
            Step::Tell { from, id, nodes } => self.ask_to_tell(from, id, nodes),
            Step::Told { to, id, nodes, broker } => self.end_tell(to, id, nodes, broker),
        }
    }

    /// systemd has executed a script.
    pub(super) fn begin_script(&mut self, rank: u32, unit: &UnitName, asked: Moment) {
        let what = self.rng.random_range(0..TROUBLE);
        let is_prolog = unit.stage() == Stage::Prolog;
        let state = &mut self.ranks[rank as usize];
        let text = |text: Option<&str>| text.unwrap_or_default().to_string();
        let script = Script {
            unit: unit.clone(),
            invocation: text(state.systemd.invocation_id(unit)),
            digest: text(state.systemd.digest(unit)),
            exited: None,
            mark: if is_prolog && (3..8).contains(&what) { Mark::Wanted } else { Mark::None },
            deaf: what == 2,
            asked,
            began: self.now,
            is_told: false,
            lost_with_manager: false,
        };
        let index = state.scripts.len();
        let marks = script.mark == Mark::Wanted;
        state.scripts.push(script);
        note!(self, "{unit} runs");
        self.forward_from_systemd(rank);
        self.check_script(rank, index);
        let seconds = match what {
            1 | 2 => self.rng.random_range(60.0..400.0),
            _ => self.rng.random_range(0.005..3.0),
        };
        if marks {
            self.at(self.now + seconds / 2.0, Item::Script(Step::Mark { rank, index }));
        }
        let status = WaitStatus::exited(i32::from(what == 0));
        self.at(self.now + seconds, Item::Script(Step::End { rank, index, status }));
    }

    fn end_script(&mut self, rank: u32, index: usize, status: WaitStatus) {
        let state = &mut self.ranks[rank as usize];
        let script = &mut state.scripts[index];
        if !script.runs() {
            return;
        }
        let status = match script.mark {
            // It waits for the answer.
            Mark::Wanted if status.signal().is_none() => {
                let again = Item::Script(Step::End { rank, index, status });
                return self.at(self.now + ASK_AGAIN, again);
            }
            Mark::Refused if status == WaitStatus(0) => WaitStatus::exited(1),
            _ => status,
        };
        script.exited = Some(status);
        let unit = script.unit.clone();
        note!(self, "{unit} exits: {status}");
        self.ranks[rank as usize].systemd.handle_exited(&unit, status, false);
        self.forward_from_systemd(rank);
    }

    /// A prolog marks its node, or tries it again.
    fn mark(&mut self, rank: u32, index: usize) {
        let state = &self.ranks[rank as usize];
        let script = &state.scripts[index];
        if !script.runs() || script.mark != Mark::Wanted {
            return;
        }
        let id = script.unit.job();
        if state.node.is_none() {
            return self.mark_again(rank, index);
        }
        let holder = self.life(rank);
        let number = self.requests.open(holder, holder, Asked::Nothing);
        self.marks.insert(number, (rank, index));
        // An answer that does not come is waited for in vain: the module is gone.
        self.mark_again(rank, index);
        let credential = Credential { userid: 0, owner: false, local: true };
        let payload = json!({ "id": id, "reason": format!("script {index}") }).to_string();
        match Topic::Degraded.read(RequestId::Remote(number), credential, payload.as_bytes()) {
            Ok(event) => self.handle(rank, event),
            Err(fault) => self.violate("bounded", format!("a mark cannot be read: {fault}")),
        }
    }

    fn mark_again(&mut self, rank: u32, index: usize) {
        self.at(self.now + ASK_AGAIN, Item::Script(Step::Mark { rank, index }));
    }

    /// A prolog is answered that marks its node. Returns false if none waits with this number.
    pub(super) fn answer_mark(&mut self, number: u64, result: &Result<(), Fault>) -> bool {
        let Some((rank, index)) = self.marks.remove(&number) else { return false };
        self.requests.close(number);
        note!(self, "the prolog {index} of rank {rank} marks its node: {result:?}");
        let script = &mut self.ranks[rank as usize].scripts[index];
        match result {
            Ok(()) => script.mark = Mark::Kept,
            Err(Fault { errnum: libc::EAGAIN | libc::ENOSYS, .. }) => (),
            Err(fault) => {
                script.mark = Mark::Refused;
                self.check_mark_refusal(rank, index, fault);
            }
        }
        true
    }

    /// The job manager is asked to have an eventlog say something, unless it says it already.
    fn ask_to_tell(&mut self, from: Life, id: JobId, nodes: Box<DegradedNodes>) {
        let broker = self.ranks[0].brokers;
        if self.ranks[0].broker_up && self.manager.jobs.contains_key(&id) {
            return self.after(
                0.000_1,
                0.02,
                Item::Script(Step::Told { to: from, id, nodes, broker }),
            );
        }
        self.refuse_tell(from, id, nodes);
    }

    fn refuse_tell(&mut self, to: Life, id: JobId, nodes: Box<DegradedNodes>) {
        let result = Err(Fault::new(libc::EHOSTUNREACH, "No route to host"));
        self.send_event(0, to, Event::Told { asker: Role::Leader, id, nodes, result });
    }

    fn end_tell(&mut self, to: Life, id: JobId, nodes: Box<DegradedNodes>, broker: u32) {
        let is_same = self.ranks[0].broker_up && self.ranks[0].brokers == broker;
        let Some(job) = self.manager.jobs.get_mut(&id).filter(|_| is_same) else {
            return self.refuse_tell(to, id, nodes);
        };
        let is_news = !nodes.ranks.iter().all(|rank| job.degraded.contains(rank));
        job.degraded = job.degraded.union(&nodes.ranks);
        if let Some(digest) = job.allocation.as_ref().map(|known| known.digest.clone()) {
            self.told_degraded.extend(nodes.ranks.iter().map(|rank| (digest.clone(), rank)));
        }
        note!(self, "{id}: {nodes:?}");
        self.commit_manager(broker);
        let result = Ok(is_news);
        self.send_event(0, to, Event::Told { asker: Role::Leader, id, nodes, result });
    }

    /// A signal arrives at a script.
    pub(super) fn signal_script(&mut self, rank: u32, unit: &UnitName, signal: i32) {
        if signal == libc::SIGKILL && !self.messages.released.contains(&unit.job()) {
            return self.violate("script-not-killed", format!("{unit} gets SIGKILL"));
        }
        let state = &self.ranks[rank as usize];
        let Some(invocation) = state.systemd.invocation_id(unit) else { return };
        let is_it = |script: &Script| script.unit == *unit && script.invocation == invocation;
        let Some(index) = state.scripts.iter().rposition(is_it) else { return };
        let script = &mut self.ranks[rank as usize].scripts[index];
        script.is_told |= signal == libc::SIGTERM;
        if !script.deaf {
            let status = WaitStatus::signaled(signal);
            self.after(0.001, 0.5, Item::Script(Step::End { rank, index, status }));
        }
    }
}
