//! What the connector asks a broker that is back, before the client's own requests.

use serde_json::json;

use crate::channel::Peer;
use crate::connector::{Connector, Phase, bequest};
use crate::flight::{BAD_ANSWER, NO_HOST, NO_NAMESPACE, NO_SERVICE};
use crate::ledger::{Found, Ledger, Settling};
use crate::packet::{ANY_RANK, Packet};
use crate::standing::Item;

/// The connector's own requests have matchtags from here on. libflux gives clients the lowest
/// free matchtag, so a client would need two thousand million requests in flight to reach it.
const OWN_TAGS: u32 = 0x8000_0000;
/// The rank of the coordinator, which makes checkpoints.
pub(crate) const RANK_0: u32 = 0;
/// Pauses before a namespace is asked again, in seconds: each is twice the last.
pub(crate) const PAUSE_FIRST: f64 = 0.1;
pub(crate) const PAUSE_MAX: f64 = 2.0;
/// A checkpoint is requested when done commits take this fraction of their limit.
const COVER_PART: usize = 4;
/// Seconds until a checkpoint is requested again after an error.
const COVER_PAUSE: f64 = 2.0;

/// The purpose of a request of the connector's own.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Own {
    /// Enters the barrier for the shell, for the time with this number.
    Barrier(u32),
    /// Asks for a checkpoint with the commits of a namespace up to this number.
    Cover(String, u64),
    /// Hands the commits that no checkpoint has over to the rank's module, from this version of the
    /// ledger.
    Bequest(String, u64),
    /// Removes the client's key, because the client has closed the connection.
    Farewell,
    /// See [`Settling::Fencing`].
    Fence(String),
    /// Waits until the broker is in RUN.
    Greeting,
    /// Asks whether the broker is in RUN, because errors are held back.
    InRun,
    /// Whether the job's leader shell runs.
    LeaderShell,
    /// See [`Settling::Looking`].
    Look(String),
    /// Whether there is the guest namespace that the watch with this matchtag needs.
    Namespace(u32),
    /// Which answers this client needs, that has sent requests through a channel.
    Needed(String),
    /// Whether the broker of a channel's receiver is in RUN.
    PeerRuns(Peer),
    /// Whether the receiver itself runs. True if its broker has been in RUN for [`BACK_AFTER`].
    PeerShell(Peer, bool),
    /// What a channel's receiver has.
    Received(Peer),
    /// Does a commit again that the client believes to be done.
    Replay(String),
    /// Whether the broker of a channel's sender is in RUN.
    SenderRuns(String),
    /// Whether the sender itself runs. True as with [`Own::PeerShell`].
    SenderShell(String, bool),
    /// Makes a subscription, service or group again.
    Standing(Item),
    /// See [`Settling::Asking`].
    Whose(String),
}

impl Own {
    pub(crate) fn is_tag(tag: u32) -> bool {
        tag >= OWN_TAGS
    }

    /// The receiver of a channel that it is about.
    pub(crate) fn receiver(&self) -> Option<&Peer> {
        match self {
            Self::Received(peer) | Self::PeerRuns(peer) | Self::PeerShell(peer, _) => Some(peer),
            _ => None,
        }
    }

    /// The sender of a channel that it is about.
    pub(crate) fn sender(&self) -> Option<&String> {
        match self {
            Self::Needed(client) | Self::SenderRuns(client) | Self::SenderShell(client, _) => {
                Some(client)
            }
            _ => None,
        }
    }
}

impl<P: Packet> Connector<P> {
    pub(crate) fn ask(&mut self, own: Own, topic: &str, payload: &str) {
        self.ask_rank(own, topic, payload, ANY_RANK);
    }

    pub(crate) fn ask_rank(&mut self, own: Own, topic: &str, payload: &str, rank: u32) {
        let tag = self.own_tag(own);
        self.transmit(P::request(topic, tag, rank, payload));
    }

    /// Asks the KVS of the client's own rank. A broker whose KVS is being unloaded passes on what is for
    /// any rank: then a later commit could be done and an earlier one be refused.
    pub(crate) fn ask_kvs(&mut self, own: Own, topic: &str, payload: &str) {
        self.ask_rank(own, topic, payload, self.home());
    }

    /// The client's own rank, if that is known.
    pub(crate) fn home(&self) -> u32 {
        self.rank.unwrap_or(ANY_RANK)
    }

    fn own_tag(&mut self, own: Own) -> u32 {
        self.next_own = (self.next_own + 1) % OWN_TAGS;
        let tag = OWN_TAGS + self.next_own;
        self.own.insert(tag, own);
        tag
    }

    pub(crate) fn own_answer(&mut self, now: f64, packet: &P) {
        let header = packet.header();
        // Requests of an earlier connection are not in the map.
        let Some(own) = self.own.remove(&header.matchtag) else { return };
        let ok = header.errnum == 0;
        match own {
            Own::Barrier(entry) => self.barrier_answered(now, entry, packet),
            // It was only just starting when the client connected: nothing was lost.
            Own::Greeting if ok && self.lost_at.is_none() => self.go_live(now),
            Own::Greeting if ok => self.restore(now),
            // The broker is shutting down again, and will close the connection.
            Own::Greeting => {}
            Own::InRun if ok => self.release_held_back(),
            Own::InRun => self.ask_in_run_later(now),
            Own::Standing(item) => {
                if !ok {
                    self.standing.refused(item, header.errnum);
                }
                self.stand(now);
            }
            Own::Fence(namespace) => self.fenced(now, &namespace, header.errnum),
            Own::Look(namespace) => self.looked(now, &namespace, packet),
            Own::Replay(namespace) => self.replayed(now, &namespace, header.errnum),
            Own::Cover(namespace, mark) => self.covered(now, &namespace, mark, header.errnum),
            Own::Bequest(namespace, version) => self.bequeathed(now, &namespace, version, packet),
            Own::Farewell => {}
            Own::Namespace(tag) => self.namespace_found(now, tag, header.errnum),
            Own::Whose(namespace) => self.whose(now, &namespace, packet),
            Own::Needed(client) => self.needed(now, &client, packet),
            Own::SenderRuns(client) => self.sender_runs(now, &client, packet),
            Own::SenderShell(client, is_back) => self.sender_shell(now, &client, is_back, packet),
            Own::LeaderShell => self.leader_shell(packet),
            Own::PeerRuns(peer) => self.peer_runs(now, &peer, packet),
            Own::PeerShell(peer, is_back) => self.peer_shell(now, &peer, is_back, packet),
            Own::Received(peer) => self.received(now, &peer, packet),
        }
    }

    /// The broker is in RUN: makes subscriptions, services and groups again.
    fn restore(&mut self, now: f64) {
        self.phase = Phase::Restoring;
        self.standing.begin();
        self.ask_standing(now, self.standing.all());
    }

    fn ask_standing(&mut self, now: f64, items: Vec<Item>) {
        for item in items {
            let (topic, payload) = item.clone();
            self.ask(Own::Standing(item), topic, &payload);
        }
        self.stand(now);
    }

    /// Asks again for items that were refused: a connection that is just ending may still hold
    /// them. After the last attempt the connection ends, because the client would otherwise rely
    /// on a service that it does not have.
    pub(crate) fn stand_again(&mut self, now: f64) {
        if self.standing.retry_at.is_none_or(|at| at > now) {
            return;
        }
        let tries_max = (self.limits.patience / PAUSE_MAX) as u32;
        match self.standing.retry(tries_max) {
            Ok(items) => self.ask_standing(now, items),
            Err(((topic, payload), errnum)) => {
                let why = format!("the restarted broker refuses {topic} {payload}");
                self.end(errnum, why);
            }
        }
    }

    fn stand(&mut self, now: f64) {
        let left = self.own.values().any(|own| matches!(own, Own::Standing(_)));
        if self.phase != Phase::Restoring || left {
            return;
        }
        if self.standing.is_refused() {
            self.standing.retry_at = Some(now + PAUSE_MAX);
        } else {
            self.phase = Phase::Settling;
            self.settle(now);
        }
    }

    /// Asks each namespace which commits it holds.
    pub(crate) fn settle(&mut self, now: f64) {
        let due = self
            .ledgers
            .iter_mut()
            .filter(|(_, ledger)| matches!(ledger.settling, Settling::Due(at) if at <= now));
        let due: Vec<(String, String)> = due
            .map(|(namespace, ledger)| {
                ledger.settling = Settling::Fencing;
                (namespace.clone(), ledger.fence())
            })
            .collect();
        for (namespace, fence) in due {
            self.ask_kvs(Own::Fence(namespace), "kvs.commit", &fence);
        }
        let settled = self.ledgers.values().all(|ledger| ledger.settling.is_over());
        if self.phase == Phase::Settling && settled {
            self.go_live(now);
        }
    }

    fn fenced(&mut self, now: f64, namespace: &str, errnum: i32) {
        if errnum != 0 {
            return self.wait_for(now, namespace, errnum);
        }
        if !self.ask_whose(namespace) {
            self.look(namespace);
        }
    }

    /// Asks which commits the namespace holds.
    pub(crate) fn look(&mut self, namespace: &str) {
        let offers = self.offers_again(namespace);
        let Some(ledger) = self.ledgers.get_mut(namespace) else { return };
        ledger.settling = if offers { Settling::Offering } else { Settling::Looking };
        if offers {
            return;
        }
        let look = ledger.look();
        self.ask_kvs(Own::Look(namespace.to_string()), "kvs.lookup-plus", &look);
    }

    /// The namespace does not exist. Its restoration may take time.
    pub(crate) fn wait_for(&mut self, now: f64, namespace: &str, errnum: i32) {
        let patience = self.limits.patience;
        let Some(ledger) = self.ledgers.get_mut(namespace) else { return };
        let pause = ledger.next_pause();
        ledger.waited += pause;
        let comes = matches!(errnum, NO_HOST | NO_NAMESPACE | NO_SERVICE);
        if comes && ledger.waited < patience {
            ledger.settling = Settling::Due(now + pause);
            return;
        }
        // It will not return, or its answer cannot be read (errno 0). Its commits can be neither
        // looked up nor done again.
        let errnum = if errnum == 0 { BAD_ANSWER } else { errnum };
        let open = ledger.unanswered(u64::MAX);
        self.ledgers.remove(namespace);
        for number in open {
            if let Some(tag) = self.tag_of(namespace, number) {
                self.refuse(
                    tag,
                    errnum,
                    "the restarted broker does not have the namespace any more",
                );
            }
        }
        self.settle(now);
    }

    fn tag_of(&self, namespace: &str, number: u64) -> Option<u32> {
        let found = self.flights.iter().find(|(_, flight)| {
            flight.commit.as_ref().is_some_and(|(name, n)| name == namespace && *n == number)
        });
        found.map(|(tag, _)| *tag)
    }

    fn looked(&mut self, now: f64, namespace: &str, packet: &P) {
        let found = Some(packet).filter(|packet| packet.header().errnum == 0);
        let found = found.and_then(|packet| Found::parse(packet.payload()));
        let held = found.as_ref().and_then(Found::number);
        let (Some(found), Some(held)) = (found, held) else {
            return self.wait_for(now, namespace, packet.header().errnum);
        };
        let Some(ledger) = self.ledgers.get_mut(namespace) else { return };
        ledger.tries = 0;
        ledger.waited = 0.0;
        for number in ledger.unanswered(held) {
            self.answer_commit(namespace, number, &found.as_answer());
        }
        self.replay(now, namespace, held);
    }

    pub(crate) fn answer_commit(&mut self, namespace: &str, number: u64, answer: &str) {
        if let Some(tag) = self.tag_of(namespace, number)
            && let Some(flight) = self.flights.get(&tag)
        {
            let answer = flight.request.answer(answer);
            self.last_answer(tag, answer);
        }
    }

    /// Does the commits again that the namespace lacks.
    fn replay(&mut self, now: f64, namespace: &str, held: u64) {
        let Some(ledger) = self.ledgers.get(namespace) else { return };
        let mut left = 0;
        for (_, is_open, packet) in ledger.after(held) {
            if is_open {
                // The answer goes to the client.
                self.transmit(packet);
            } else {
                left += 1;
                let payload = String::from_utf8_lossy(packet.payload()).into_owned();
                self.ask_kvs(Own::Replay(namespace.to_string()), "kvs.commit", &payload);
            }
        }
        if let Some(ledger) = self.ledgers.get_mut(namespace) {
            ledger.settling = if left == 0 { Settling::Done } else { Settling::Replaying(left) };
        }
        self.settle(now);
    }

    fn replayed(&mut self, now: f64, namespace: &str, errnum: i32) {
        let Some(ledger) = self.ledgers.get_mut(namespace) else { return };
        if matches!(errnum, NO_HOST | NO_NAMESPACE | NO_SERVICE) {
            // It was not done: settle from the beginning.
            ledger.settling = Settling::Due(now + PAUSE_FIRST);
        } else if let Settling::Replaying(left) = ledger.settling {
            ledger.settling = if left > 1 { Settling::Replaying(left - 1) } else { Settling::Done };
        }
        self.settle(now);
    }

    /// Keeps the remembered commits of a namespace within their limit.
    pub(crate) fn bound_commits(&mut self, namespace: &str) {
        let limit = self.limits.commits_max;
        let Some(ledger) = self.ledgers.get_mut(namespace) else { return };
        if ledger.closed_bytes <= limit / COVER_PART || ledger.covering {
            return;
        }
        match job_of(namespace).filter(|_| ledger.cover_at.is_none()) {
            Some(id) => {
                ledger.covering = true;
                let own = Own::Cover(namespace.to_string(), ledger.mark());
                self.ask_rank(own, "job-exec.checkpoint", &json!({ "id": id }).to_string(), RANK_0);
            }
            None if ledger.is_covered => {}
            None => ledger.drop_oldest(limit),
        }
    }

    /// Repeats failed requests for a checkpoint.
    pub(crate) fn ask_covered(&mut self, now: f64) {
        let due = self.ledgers.iter_mut().filter_map(|(namespace, ledger)| {
            ledger.cover_at.take_if(|at| *at <= now).map(|_| namespace.clone())
        });
        let due: Vec<String> = due.collect();
        for namespace in due {
            if self.is_closing() {
                self.bequeath(&namespace);
            } else {
                self.bound_commits(&namespace);
            }
        }
    }

    fn covered(&mut self, now: f64, namespace: &str, mark: u64, errnum: i32) {
        let is_closing = self.is_closing();
        let Some(ledger) = self.ledgers.get_mut(namespace) else { return };
        ledger.covering = false;
        if errnum == 0 {
            ledger.is_covered = true;
            ledger.covered(mark);
        } else {
            ledger.cover_at = Some(now + COVER_PAUSE);
        }
        if !is_closing {
            self.bound_commits(namespace);
        } else if errnum == 0 {
            // Commits that were made meanwhile.
            self.bequeath(namespace);
        } else if ledger.tries >= bequest::ASKED_MAX {
            self.ledgers.remove(namespace);
        } else {
            ledger.tries += 1;
        }
    }
}

/// The job whose guest namespace this is (flux-core `libjob/job.c`, `flux_job_kvs_namespace`).
pub(crate) fn job_of(namespace: &str) -> Option<u64> {
    namespace.strip_prefix("job-")?.parse().ok()
}

impl<P: Packet> Ledger<P> {
    /// Seconds before the next attempt.
    pub(crate) fn next_pause(&mut self) -> f64 {
        let pause = PAUSE_FIRST * f64::from(1u32 << self.tries.min(10));
        self.tries += 1;
        pause.min(PAUSE_MAX)
    }

    /// Bytes that count against [`crate::Limits::retained_max`]. Where checkpoints are made, done
    /// commits count too, because they are kept until a checkpoint has them.
    pub(crate) fn kept(&self) -> usize {
        if self.covering || self.is_covered { self.bytes } else { self.bytes - self.closed_bytes }
    }
}
