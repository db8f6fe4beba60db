//! The KVS of the tests' world.

use super::World;
use crate::machine::{Creation, Fault, KvsOp, KvsResult, Opened};

impl World {
    pub(super) fn kvs(&mut self, op: KvsOp) -> KvsResult {
        match op {
            KvsOp::Append { .. } if self.fail_commits > 0 => {
                self.fail_commits -= 1;
                KvsResult::Appended(Err(Fault::new(libc::EIO, "no")))
            }
            KvsOp::Append { events, .. } => {
                self.commits += 1;
                self.events.extend(events);
                KvsResult::Appended(Ok(()))
            }
            KvsOp::Create { .. } if self.has_namespace => KvsResult::Created(Ok(Creation::Existed)),
            KvsOp::Create { .. } => {
                self.has_namespace = true;
                KvsResult::Created(Ok(Creation::Made))
            }
            KvsOp::Link => KvsResult::Linked(Ok(())),
            KvsOp::Move { .. } if self.fail_moves > 0 => {
                self.fail_moves -= 1;
                KvsResult::Moved(Err(Fault::new(libc::EIO, "no")))
            }
            KvsOp::Move { usage } => {
                self.usage = usage;
                (self.moved, self.has_namespace) = (true, false);
                KvsResult::Moved(Ok(()))
            }
            KvsOp::Recommit(bequest) => {
                self.recommitted.push(bequest.client.clone());
                KvsResult::Recommitted { client: bequest.client.clone(), result: Ok(()) }
            }
            KvsOp::Released => {
                let known = self.lose_released.clone();
                KvsResult::Released(known.unwrap_or_else(|| Ok(self.released_in_parts())))
            }
            KvsOp::Open { .. } if self.lose_namespace => {
                KvsResult::Opened(Err(Fault::new(libc::ENOTSUP, "no such namespace")))
            }
            KvsOp::Open { .. } => {
                self.leaders += 1;
                let (events, leaders) = (self.events.clone(), self.leaders);
                KvsResult::Opened(Ok(Opened { events, moved: self.moved, leaders }))
            }
        }
    }
}
