//! The ranks below an agent, and what goes up from them and from the agent itself.

use super::Agent;
use super::upstream::Upstream;
use crate::machine::context::Context;
use crate::machine::effect::{Effect, Effects, StreamItem};
use crate::machine::event::{Role, StreamId};
use crate::machine::peer_request::PeerRequest;
use crate::machine::tree;
use crate::proto::peer::{RankReport, Report, Reports, ShellsRequest, StreamEnd};
use crate::proto::{BrokerRank, Idset};

/// A subtree below this agent.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Child {
    pub(super) root: BrokerRank,
    pub(super) ranks: Idset,
}

impl Agent {
    /// Passes the request on to the ranks below.
    pub(super) fn ask_children(&mut self, cx: Context, request: &ShellsRequest, out: &mut Effects) {
        self.children.clear();
        let mut below = request.ranks.clone();
        below.remove(cx.facts.rank.0);
        for (root, ranks) in tree::split(&below, request.arity) {
            let stream = out.stream();
            let output = request.output.iter().filter(|p| ranks.contains_rank(p.rank));
            let request = ShellsRequest {
                parent: cx.facts.rank,
                ranks: ranks.clone(),
                output: output.copied().collect(),
                ..request.clone()
            };
            let (role, shells) = (Role::Agent, Box::new(request));
            out.send(root, PeerRequest::Shells { role, stream, shells });
            self.children.insert(stream, Child { root, ranks });
        }
    }

    /// A child's stream has brought reports, or has ended.
    pub(in crate::machine) fn handle_reports(
        &mut self,
        cx: Context,
        stream: StreamId,
        result: Result<Reports, StreamEnd>,
        out: &mut Effects,
    ) {
        let Some(child) = self.children.get(&stream).cloned() else { return };
        match result {
            Ok(Reports { reports }) => {
                for RankReport { ranks, report } in reports {
                    for rank in ranks.intersection(&child.ranks).ranks() {
                        self.gather_of(cx, rank, report.clone());
                    }
                }
            }
            Err(end) => {
                self.children.remove(&stream);
                self.report_lost_child(cx, &child, end);
            }
        }
        self.send_if_ready(cx, out);
    }

    fn report_lost_child(&mut self, cx: Context, child: &Child, end: StreamEnd) {
        match end {
            // Another leader looks after them.
            StreamEnd::Superseded { .. } => return,
            end => self.gather_of(cx, child.root, Report::Unreachable { end }),
        }
        for rank in child.ranks.ranks().filter(|rank| *rank != child.root) {
            self.gather_of(cx, rank, Report::Orphaned);
        }
    }

    /// Reports of this rank. Without a leader they are dropped: the next one is told everything.
    pub(super) fn gather(&mut self, cx: Context, reports: impl IntoIterator<Item = Report>) {
        for report in reports {
            self.gather_of(cx, cx.facts.rank, report);
        }
    }

    pub(super) fn gather_of(&mut self, cx: Context, rank: BrokerRank, report: Report) {
        if let Upstream::Led(led) = &mut self.upstream {
            led.reports.add(cx.now.mono, rank, report);
        }
    }

    pub(super) fn send_if_ready(&mut self, cx: Context, out: &mut Effects) {
        let is_leaf = self.children.is_empty();
        if let Upstream::Led(led) = &self.upstream
            && led.reports.is_ready(cx.now.mono, &self.ranks, is_leaf)
        {
            self.send(out);
        }
    }

    pub(super) fn send(&mut self, out: &mut Effects) {
        if let Upstream::Led(led) = &mut self.upstream
            && let Some(reports) = led.reports.take()
        {
            out.push(Effect::Stream { to: led.to, item: StreamItem::Reports(reports) });
        }
    }
}
