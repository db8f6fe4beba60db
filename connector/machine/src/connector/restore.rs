//! What the connector asks a broker that is back, before the client's own requests.

use serde_json::json;

use crate::connector::{Connector, Phase, bequest};
use crate::errnum::{BAD_ANSWER, NO_HOST, NO_NAMESPACE, NO_SERVICE};
use crate::ledger::{Found, Ledger, Settling};
use crate::packet::{ANY_RANK, Packet};
use crate::question::{PAUSE_MAX, doubled};
use crate::standing::Item;
use crate::wire::Own;

/// The rank of the coordinator, which makes checkpoints.
pub(crate) const RANK_0: u32 = 0;
/// The first pause before a namespace is asked again, in seconds.
const PAUSE_FIRST: f64 = 0.1;
/// A checkpoint is requested when done commits take this fraction of their limit.
const COVER_PART: usize = 4;
/// Seconds until a checkpoint is requested again after an error.
const COVER_PAUSE: f64 = 2.0;

impl<P: Packet> Connector<P> {
    pub(crate) fn own_answer(&mut self, now: f64, packet: &P) {
        let header = packet.header();
        let Some(own) = self.cx.wire.answered(header.matchtag) else { return };
        let ok = header.errnum == 0;
        match own {
            Own::Barrier => {
                let is_patient = now < self.patient_until;
                self.barrier.answered(&mut self.cx, packet, is_patient);
            }
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
            Own::Leader => self.leader.answered(packet),
            Own::Receiver(peer, step) => self.receiver_heard(&peer, step, packet),
            Own::Sender(client, step) => self.sender_heard(&client, step, packet),
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
            self.cx.wire.ask(Own::Standing(item), topic, &payload, ANY_RANK);
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
        let tries_max = (self.cx.client.limits.patience / PAUSE_MAX) as u32;
        match self.standing.retry(tries_max) {
            Ok(items) => self.ask_standing(now, items),
            Err(((topic, payload), errnum)) => {
                let why = format!("the restarted broker refuses {topic} {payload}");
                self.end(errnum, why);
            }
        }
    }

    fn stand(&mut self, now: f64) {
        let left = self.cx.wire.asked().any(|own| matches!(own, Own::Standing(_)));
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
            self.cx.wire.ask(Own::Fence(namespace), "kvs.commit", &fence, self.cx.client.home());
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
        self.cx.wire.ask(
            Own::Look(namespace.to_string()),
            "kvs.lookup-plus",
            &look,
            self.cx.client.home(),
        );
    }

    /// The namespace does not exist. Its restoration may take time.
    pub(crate) fn wait_for(&mut self, now: f64, namespace: &str, errnum: i32) {
        let patience = self.cx.client.limits.patience;
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
                self.cx.wire.send(packet);
            } else {
                left += 1;
                let payload = String::from_utf8_lossy(packet.payload()).into_owned();
                self.cx.wire.ask(
                    Own::Replay(namespace.to_string()),
                    "kvs.commit",
                    &payload,
                    self.cx.client.home(),
                );
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
        let limit = self.cx.client.limits.commits_max;
        let Some(ledger) = self.ledgers.get_mut(namespace) else { return };
        if ledger.closed_bytes <= limit / COVER_PART || ledger.covering {
            return;
        }
        match job_of(namespace).filter(|_| ledger.cover_at.is_none()) {
            Some(id) => {
                ledger.covering = true;
                let own = Own::Cover(namespace.to_string(), ledger.mark());
                self.cx.wire.ask(
                    own,
                    "job-exec.checkpoint",
                    &json!({ "id": id }).to_string(),
                    RANK_0,
                );
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
            if self.cx.client.is_closing {
                self.bequeath(&namespace);
            } else {
                self.bound_commits(&namespace);
            }
        }
    }

    fn covered(&mut self, now: f64, namespace: &str, mark: u64, errnum: i32) {
        let is_closing = self.cx.client.is_closing;
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
        let pause = doubled(PAUSE_FIRST, PAUSE_MAX, self.tries);
        self.tries += 1;
        pause
    }

    /// Bytes that count against [`crate::Limits::retained_max`]. Where checkpoints are made, done
    /// commits count too, because they are kept until a checkpoint has them.
    pub(crate) fn kept(&self) -> usize {
        if self.covering || self.is_covered { self.bytes } else { self.bytes - self.closed_bytes }
    }
}
