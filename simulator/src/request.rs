//! Requests that are not answered yet.

use std::collections::BTreeMap;

use job_exec_rs::machine::Awaited;

/// One life of a module, from load to unload or death. Answers to an earlier life reach nobody.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Life {
    pub(super) rank: u32,
    pub(super) number: u32,
}

/// What was asked.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Asked {
    /// A guest's request, which must be refused.
    Intruder,
    Manager,
    Nothing,
    /// What another request, of this number, has asked for.
    Passed(u64),
    /// What a module has asked another one.
    Peer(Awaited),
}

#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) asker: Life,
    pub(super) holder: Life,
    pub(super) asked: Asked,
}

/// All requests by number.
#[derive(Default)]
pub(super) struct Requests {
    open: BTreeMap<u64, Request>,
    last: u64,
}

impl Requests {
    pub(super) fn open(&mut self, asker: Life, holder: Life, asked: Asked) -> u64 {
        self.last += 1;
        self.open.insert(self.last, Request { asker, holder, asked });
        self.last
    }

    /// Who has asked a request, and what.
    pub(super) fn asker(&self, number: u64) -> Option<(Life, Asked)> {
        self.open.get(&number).map(|request| (request.asker, request.asked.clone()))
    }

    /// Who has to answer a request.
    pub(super) fn holder(&self, number: u64) -> Option<Life> {
        self.open.get(&number).map(|request| request.holder)
    }

    pub(super) fn close(&mut self, number: u64) -> Option<Request> {
        self.open.remove(&number)
    }

    /// Removes the requests that a life has to answer. Nobody will answer them.
    pub(super) fn take_held_by(&mut self, life: Life) -> Vec<Request> {
        let held = self.open.iter().filter(|(_, request)| request.holder == life);
        let numbers: Vec<u64> = held.map(|(number, _)| *number).collect();
        numbers.into_iter().filter_map(|number| self.open.remove(&number)).collect()
    }

    /// The requests that a life has sent.
    pub(super) fn asked_by(&self, life: Life) -> Vec<(u64, Request)> {
        let asked = self.open.iter().filter(|(_, request)| request.asker == life);
        asked.map(|(number, request)| (*number, request.clone())).collect()
    }
}
