//! The driver of a node in a real broker: it gives the node events and carries out the node's
//! effects.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::drains::Drains;
use super::kvs::Kvs;
use super::unsaved::Unsaved;
use super::{Futures, Handle, HandleError, Message, Requests, RpcError, Timer};
use crate::machine::{
    Answer, Credential, Effect, Effects, Event, Fault, Level, MonoTime, Node, Now, PeerRequest,
    RequestId, StreamItem, Topic,
};
use crate::port::supervisor::Supervisor;
use crate::proto::{BrokerRank, JobEvent, JobId, WallTime};

/// How long an unload waits for the last checkpoint, in seconds. A broker that stops may be waited
/// for by systemd, and the KVS may not answer any more.
const FINISH_SECONDS: f64 = 5.0;

/// One rank's node, in the reactor.
pub struct Driver {
    handle: Handle,
    service: String,
    futures: Rc<Futures>,
    kvs: Kvs,
    drains: Rc<Drains>,
    unsaved: OnceCell<Rc<Unsaved>>,
    node: RefCell<Node>,
    effects: RefCell<Effects>,
    requests: Requests,
    supervisor: RefCell<Option<Box<dyn Supervisor>>>,
    timer: RefCell<Option<Timer>>,
    armed: Cell<Option<MonoTime>>,
    events: RefCell<VecDeque<Event>>,
    busy: Cell<bool>,
    /// The reactor runs only until the node has finished.
    is_finishing: Cell<bool>,
    /// The clock of timers, in seconds, and when this was made.
    clock: fn() -> f64,
    began: f64,
    this: Weak<Driver>,
}

impl Driver {
    /// Makes a driver for `node`, whose peers reach it under the name `service`. Timers run by `clock`,
    /// which is that of the node's uptime ([`crate::machine::Facts::uptime`]).
    ///
    /// # Errors
    /// If libflux has no memory.
    pub fn new(
        handle: Handle,
        service: &str,
        futures: Rc<Futures>,
        node: Node,
        clock: fn() -> f64,
    ) -> Result<Rc<Self>, HandleError> {
        let drains = Drains::new(handle, Rc::clone(&futures))?;
        let driver = Rc::new_cyclic(|this: &Weak<Driver>| Self {
            handle,
            service: service.to_string(),
            kvs: Kvs::new(handle, Rc::clone(&futures)),
            futures,
            drains,
            unsaved: OnceCell::new(),
            node: RefCell::new(node),
            effects: RefCell::default(),
            requests: Requests::default(),
            supervisor: RefCell::default(),
            timer: RefCell::default(),
            armed: Cell::default(),
            events: RefCell::default(),
            busy: Cell::default(),
            is_finishing: Cell::default(),
            clock,
            began: clock(),
            this: this.clone(),
        });
        let weak = driver.this.clone();
        let timer = Timer::new(handle, move || {
            if let Some(driver) = weak.upgrade() {
                driver.armed.set(None);
                driver.handle(Event::Timeout);
            }
        })?;
        driver.timer.replace(Some(timer));
        let weak = driver.this.clone();
        let unsaved = Unsaved::new(handle, Rc::clone(&driver.futures), move || {
            if let Some(driver) = weak.upgrade() {
                driver.handle(Event::KvsChanged);
            }
        })?;
        let _ = driver.unsaved.set(unsaved);
        Ok(driver)
    }

    /// Sets the supervisor of this rank.
    pub fn set_supervisor(&self, supervisor: Box<dyn Supervisor>) {
        self.supervisor.replace(Some(supervisor));
    }

    /// Handles a disconnect request: its sender is gone, so its requests are forgotten.
    pub fn handle_disconnect(&self, message: &Message) {
        for request in self.requests.find_of_sender(message) {
            self.handle(Event::Disconnected { request });
        }
    }

    /// Finds jobs that were in CLEANUP when rank 0's broker or module was started again. To be called
    /// when the job manager has answered hello. What waits then may be in no checkpoint.
    pub fn find_cleaning(&self) {
        self.handle(Event::KvsChanged);
        let (this, kvs) = (self.this.clone(), self.kvs.clone());
        self.futures.spawn(async move {
            let listed = kvs.list_active().await;
            let Some(driver) = this.upgrade() else { return };
            match listed {
                Ok(listing) => {
                    let cleanup = listing.cleanup.clone();
                    driver.handle(Event::RunningAsked(listing));
                    cleanup.into_iter().for_each(|id| driver.read_cleaning(id));
                }
                Err(text) => driver.log(Level::Error, &text),
            }
        });
    }

    fn read_cleaning(&self, id: JobId) {
        let (this, kvs) = (self.this.clone(), self.kvs.clone());
        self.futures.spawn(async move {
            let found = kvs.read_cleaning(id).await;
            let Some(driver) = this.upgrade() else { return };
            match found {
                Ok(Some(cleaning)) => driver.handle(Event::Cleaning(Box::new(cleaning))),
                Ok(None) => driver.handle(Event::NotCleaning { id }),
                Err(text) => driver.log(Level::Error, &text),
            }
        });
    }

    /// What this rank has to say to `stats-get`.
    pub fn own_stats(&self) -> Value {
        self.node.borrow().stats(self.now())
    }

    /// What this rank has to say to a user who is not the instance owner.
    pub fn stats_for(&self, user: Credential) -> Value {
        self.node.borrow().stats_for(user, self.now())
    }

    /// Passes the answer to `stats-get` to `done`.
    pub fn stats(&self, done: impl FnOnce(Value) + 'static) {
        let (stats, own) = (self.own_stats(), self.node.borrow().facts().rank.0);
        let topic = format!("{}.stats-get", self.service);
        super::stats::gather(&self.futures, &topic, own, stats, done);
    }

    /// Reads a request, and keeps its message so that the node can answer it.
    ///
    /// # Errors
    /// The message, and what is wrong with it.
    pub fn read(&self, topic: Topic, message: Message) -> Result<Event, (Message, Fault)> {
        let request = self.requests.next_id();
        match topic.read(request, message.credential(), message.payload()) {
            Ok(event) => {
                if topic.is_answered() {
                    self.requests.hold(message);
                }
                Ok(event)
            }
            Err(fault) => Err((message, fault)),
        }
    }

    /// Gives the node an event and carries out the effects. Events that occur meanwhile are handled
    /// after it.
    pub fn handle(&self, event: Event) {
        self.events.borrow_mut().push_back(event);
        if self.busy.replace(true) {
            return;
        }
        while let Some(event) = self.next_event() {
            let effects = {
                let mut effects = self.effects.borrow_mut();
                self.node.borrow_mut().handle(self.now(), event, &mut effects);
                std::mem::take(&mut effects.list)
            };
            for effect in effects {
                self.perform(effect);
            }
        }
        self.busy.set(false);
        self.set_timer();
        if self.is_finishing.get() && self.node.borrow().is_finished() {
            self.handle.stop_reactor();
        }
    }

    fn next_event(&self) -> Option<Event> {
        self.events.borrow_mut().pop_front()
    }

    /// Ends the module with an error.
    pub fn stop_with_error(&self) {
        self.handle.stop_reactor_with_error();
    }

    /// Lets the node finish what the instance would lose with the module: its last checkpoint.
    ///
    /// # Errors
    /// When libflux has no memory, or the reactor fails.
    pub fn finish(&self) -> Result<(), HandleError> {
        self.node.borrow_mut().finish(self.now());
        if self.node.borrow().is_finished() {
            return Ok(());
        }
        let handle = self.handle;
        let limit = Timer::new(handle, move || handle.stop_reactor())?;
        limit.set(Some(FINISH_SECONDS));
        self.is_finishing.set(true);
        self.set_timer();
        let result = handle.run_reactor();
        if !self.node.borrow().is_finished() {
            self.log(Level::Error, "the KVS does not answer, or fails: no last checkpoint is made");
        }
        result
    }

    /// Carries out the last effects of the node, because the module is being unloaded.
    pub fn shut_down(&self) {
        let mut effects = Effects::default();
        self.node.borrow_mut().shut_down(&mut effects);
        for effect in effects.list {
            self.perform(effect);
        }
        self.drains.give_up();
        self.kvs.stop();
    }

    fn now(&self) -> Now {
        // A clock before 1970 counts as 1970.
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mono = MonoTime((self.clock)() - self.began);
        Now { mono, wall: WallTime(wall.as_secs_f64()) }
    }

    fn set_timer(&self) {
        let next = self.node.borrow().next_timeout();
        if self.armed.replace(next) != next
            && let Some(timer) = &*self.timer.borrow()
        {
            timer.set(next.map(|at| at - self.now().mono));
        }
    }

    fn perform(&self, effect: Effect) {
        match effect {
            Effect::Answer { to, answer } => self.answer(to, answer),
            Effect::AwaitRelease { id } => self.follow(async move |kvs| {
                kvs.await_release(id).await;
                Event::ReleaseKept { id }
            }),
            Effect::Checkpoint { jobs, ended } => self.checkpoint(jobs, ended),
            Effect::Drop { to } => drop(self.requests.take(to)),
            Effect::Drain { waits, ranks, reason } => {
                let this = self.this.clone();
                self.drains.ask(ranks.to_string(), reason, move || {
                    if let (Some(id), Some(driver)) = (waits, this.upgrade()) {
                        driver.handle(Event::Drained { id, ranks });
                    }
                });
            }
            Effect::Hold { id } => self.follow(async move |kvs| {
                let result = kvs.hold(id).await;
                Event::Held { id, result }
            }),
            Effect::KillJob { id, signal } => self.kill_job(id, signal),
            Effect::Kvs { id, op } => self.follow(async move |kvs| {
                let result = kvs.run(id, op).await;
                Event::Kvs { id, result }
            }),
            Effect::Log { level, text } => self.log(level, &text),
            Effect::LostShell { id, userid, severity, shell_rank, message } => {
                let topic = format!("{userid}-shell-{}.exception", id.f58plain());
                let payload = json!({ "type": "lost-shell", "severity": severity,
                                      "shell_rank": shell_rank, "message": message });
                let rank = self.node.borrow().facts().rank;
                self.futures.notify(&topic, Some(rank.0), &payload.to_string());
            }
            Effect::Pass { to, request, topic, payload } => self.pass(to, request, topic, &payload),
            Effect::Post { id, event } => self.post(id, event),
            Effect::Raise { id, exception } => self.raise(id, &json!(exception)),
            Effect::Send { to, request } => self.send(to, &request),
            Effect::Stream { to, item } => self.respond(to, &item),
            Effect::Tell { asker, id, nodes } => self.follow(async move |kvs| {
                let result = kvs.tell(id, JobEvent::NodeDegraded((*nodes).clone())).await;
                Event::Told { asker, id, nodes, result }
            }),
            Effect::Unit(unit, command) => {
                if let Some(supervisor) = &mut *self.supervisor.borrow_mut() {
                    supervisor.submit(unit, command);
                }
            }
        }
    }

    /// Gives the node the event with which `flow` ends.
    fn follow(&self, flow: impl AsyncFnOnce(Kvs) -> Event + 'static) {
        let (this, kvs) = (self.this.clone(), self.kvs.clone());
        self.futures.spawn(async move {
            let event = flow(kvs).await;
            if let Some(driver) = this.upgrade() {
                driver.handle(event);
            }
        });
    }

    fn post(&self, id: JobId, event: JobEvent) {
        let (this, kvs) = (self.this.clone(), self.kvs.clone());
        self.futures.spawn(async move {
            let posted = kvs.post(id, &event).await;
            if let (Err(error), Some(driver)) = (posted, this.upgrade()) {
                // The job manager has freed a job whose hold an administrator ended.
                let is_free = error.errnum == libc::ENOENT;
                let level = if is_free { Level::Debug } else { Level::Error };
                driver.log(level, &format!("{id}: cannot post an event: {error}"));
            }
        });
    }

    /// Writes to the broker's log.
    pub fn log(&self, level: Level, text: &str) {
        let level = match level {
            Level::Debug => libc::LOG_DEBUG,
            Level::Error => libc::LOG_ERR,
            Level::Info => libc::LOG_INFO,
            Level::Warning => libc::LOG_WARNING,
        };
        self.handle.log(level, text);
    }

    fn check(&self, result: Result<(), HandleError>) {
        if let Err(error) = result {
            self.log(Level::Error, &error.to_string());
        }
    }

    fn respond(&self, to: RequestId, item: &StreamItem) {
        let payload = item.encode();
        self.requests.with(to, |message| self.check(message.respond(self.handle, Some(&payload))));
    }

    fn answer(&self, to: RequestId, answer: Answer) {
        let Some(message) = self.requests.take(to) else { return };
        let refuse =
            |fault: &Fault| message.respond_error(self.handle, fault.errnum, &fault.message);
        self.check(match answer {
            Answer::Barrier(result) => {
                let error = result.as_ref().err();
                let error = error.map(|fault| (fault.errnum, fault.message.as_str()));
                message.respond_to_barrier(self.handle, error)
            }
            Answer::Done(Ok(payload)) => message.respond(self.handle, payload.as_deref()),
            Answer::Done(Err(fault)) => refuse(&fault),
            Answer::End(end) => message.respond_error(self.handle, end.errnum(), &end.to_string()),
        });
    }

    /// Sends a request to another rank. Each answer becomes an event.
    fn send(&self, to: BrokerRank, request: &PeerRequest) {
        let topic = format!("{}.{}", self.service, request.topic().name());
        let payload = request.encode();
        let Some(awaited) = request.awaited(to) else {
            return self.futures.notify(&topic, Some(to.0), &payload);
        };
        let (this, is_stream) = (self.this.clone(), awaited.is_stream());
        let hear = move |answer: Result<String, RpcError>| {
            if let Some(driver) = this.upgrade() {
                driver.handle(awaited.hear(answer.map_err(Fault::from)));
            }
        };
        if is_stream {
            self.futures.stream(&topic, to.0, &payload, hear);
        } else {
            self.futures.rpc(&topic, Some(to.0), &payload, hear);
        }
    }

    fn kill_job(&self, id: JobId, signal: i32) {
        self.log(Level::Debug, &format!("Sending signal {signal} to job {id}"));
        let payload = json!({ "id": id, "signum": signal });
        let this = self.this.clone();
        self.futures.rpc("job-manager.kill", None, &payload.to_string(), move |result| {
            let Some(driver) = this.upgrade() else { return };
            if let Err(error) = result {
                driver.log(Level::Debug, &format!("{id}: kill: {error}"));
            }
            driver.handle(Event::KillAnswered { id });
        });
    }

    fn raise(&self, id: JobId, exception: &Value) {
        let mut payload = exception.clone();
        payload["id"] = json!(id);
        let this = self.this.clone();
        self.futures.rpc("job-manager.raise", None, &payload.to_string(), move |result| {
            if let (Err(error), Some(driver)) = (result, this.upgrade()) {
                driver.log(Level::Error, &format!("{id}: raise exception: {error}"));
            }
        });
    }

    fn checkpoint(&self, jobs: Vec<JobId>, ended: Vec<JobId>) {
        if let Some(unsaved) = self.unsaved.get() {
            unsaved.stop();
        }
        let (this, kvs) = (self.this.clone(), self.kvs.clone());
        self.futures.spawn(async move {
            let begun = || {
                if let Some(driver) = this.upgrade() {
                    driver.handle(Event::CheckpointBegun);
                }
            };
            let result = kvs.checkpoint(&jobs, &ended, begun).await;
            let Some(driver) = this.upgrade() else { return };
            if let (Ok(Some(saved)), Some(unsaved)) = (&result, driver.unsaved.get()) {
                unsaved.look_after(*saved);
            }
            driver.handle(Event::Checkpointed(result.map(drop)));
        });
    }

    fn pass(&self, to: BrokerRank, request: RequestId, topic: Topic, payload: &Value) {
        let topic = format!("{}.{}", self.service, topic.name());
        let this = self.this.clone();
        self.futures.rpc(&topic, Some(to.0), &payload.to_string(), move |result| {
            if let Some(driver) = this.upgrade() {
                let payload = result.map(|payload| Some(payload).filter(|it| !it.is_empty()));
                driver.answer(request, Answer::Done(payload.map_err(Fault::from)));
            }
        });
    }
}
