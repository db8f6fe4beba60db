//! Requests from the machines of one rank to those of another, and what becomes of the answers.
//!
//! Whoever carries effects out sends [`PeerRequest::encode`] under [`PeerRequest::topic`]. There
//! [`Topic::read`] makes it an event. Each answer, and the end of the stream, comes back through
//! [`Awaited::hear`].

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::machine::event::{Event, Fault, RequestId, Role, StreamId};
use crate::machine::request::Topic;
use crate::proto::peer::{
    CoveredRequest, KnownAnswer, KnownRequest, LeadRequest, OrderRequest, ShellsRequest, StreamEnd,
    StreamName,
};
use crate::proto::{BrokerRank, JobId};

/// A request to another rank.
#[derive(Clone, Debug, PartialEq)]
pub enum PeerRequest {
    /// To a leader: what a checkpoint holds. Nobody waits for an answer.
    Covered(CoveredRequest),
    /// To rank 0, a parent, a leader, or who was asked for something else: is the job known?
    /// Answered by [`Event::KnownAnswered`].
    Known {
        /// Who asks.
        asker: Role,
        /// The question.
        asked: KnownRequest,
    },
    /// To a job's first rank: lead it. Answered by [`Event::Replied`].
    Lead {
        /// The stream of its answers.
        stream: StreamId,
        /// Which job, and what is known of it.
        lead: Box<LeadRequest>,
    },
    /// To an agent: do something. Nobody waits for an answer.
    Order(OrderRequest),
    /// To an agent: start shells, or find them. Answered by [`Event::Reported`].
    Shells {
        /// Whose stream it is.
        role: Role,
        /// The stream of its reports.
        stream: StreamId,
        /// Which shells, and how to run them.
        shells: Box<ShellsRequest>,
    },
}

/// Where the answers to a [`PeerRequest`] go.
#[derive(Clone, Debug, PartialEq)]
pub enum Awaited {
    /// The one answer to a question.
    Known {
        /// Who has asked.
        asker: Role,
        /// Which rank was asked.
        to: BrokerRank,
        /// What was asked.
        asked: KnownRequest,
    },
    /// A leader's replies.
    Replies(StreamId),
    /// Reports of agents.
    Reports(StreamId),
}

impl PeerRequest {
    /// Its topic.
    pub fn topic(&self) -> Topic {
        match self {
            Self::Covered(_) => Topic::Covered,
            Self::Known { .. } => Topic::Known,
            Self::Lead { .. } => Topic::Lead,
            Self::Order(_) => Topic::Order,
            Self::Shells { .. } => Topic::Shells,
        }
    }

    /// Its payload.
    pub fn encode(&self) -> String {
        match self {
            Self::Covered(covered) => encode(covered),
            Self::Known { asked, .. } => encode(asked),
            Self::Lead { lead, .. } => encode(lead),
            Self::Order(order) => encode(order),
            Self::Shells { shells, .. } => encode(shells),
        }
    }

    /// Where its answers go. None: it has none.
    pub fn awaited(&self, to: BrokerRank) -> Option<Awaited> {
        match self {
            Self::Covered(_) | Self::Order(_) => None,
            Self::Known { asker, asked } => {
                Some(Awaited::Known { asker: *asker, to, asked: asked.clone() })
            }
            Self::Lead { stream, .. } => Some(Awaited::Replies(*stream)),
            Self::Shells { stream, .. } => Some(Awaited::Reports(*stream)),
        }
    }

    /// What it is to its receiver, which answers `request`.
    pub fn into_event(self, request: RequestId) -> Event {
        match self {
            Self::Covered(covered) => Event::Covered(covered),
            Self::Known { asked, .. } => Event::Known { request, asked },
            Self::Lead { lead, .. } => Event::Lead { request, lead },
            Self::Order(order) => Event::Order(order),
            Self::Shells { shells, .. } => Event::Shells { request, shells },
        }
    }

    /// The stream that it opens: whose, of which job, and where the request has its name.
    pub(super) fn stream(&mut self) -> Option<(StreamId, Role, JobId, &mut StreamName)> {
        match self {
            Self::Covered(_) | Self::Known { .. } | Self::Order(_) => None,
            Self::Lead { stream, lead } => {
                Some((*stream, Role::Coordinator, lead.start.id, &mut lead.stream))
            }
            Self::Shells { role, stream, shells } => {
                Some((*stream, *role, shells.id, &mut shells.stream))
            }
        }
    }
}

/// The answer to [`PeerRequest::Known`]; an error if the job is not known yet.
pub(super) fn known_answer(result: Result<bool, Fault>) -> Result<String, Fault> {
    result.map(|known| encode(&KnownAnswer { known }))
}

impl Awaited {
    /// Whether more than one answer can come.
    pub fn is_stream(&self) -> bool {
        matches!(self, Self::Replies(_) | Self::Reports(_))
    }

    /// The event of an answer, by its payload, or of the end.
    pub fn hear(&self, answer: Result<String, Fault>) -> Event {
        match self {
            Self::Known { asker, to, asked } => {
                let KnownRequest { id, digest, question, .. } = asked.clone();
                let result =
                    answer.and_then(|text| decode(&text)).map(|KnownAnswer { known }| known);
                Event::KnownAnswered { id, asker: *asker, to: *to, digest, question, result }
            }
            Self::Replies(stream) => Event::Replied { stream: *stream, result: item(answer) },
            Self::Reports(stream) => Event::Reported { stream: *stream, result: item(answer) },
        }
    }
}

fn item<T: DeserializeOwned>(answer: Result<String, Fault>) -> Result<T, StreamEnd> {
    match answer {
        Ok(text) => {
            decode(&text).map_err(|fault| StreamEnd::Incompatible { reason: fault.message })
        }
        Err(fault) => Err(StreamEnd::from_error(fault.errnum, fault.message)),
    }
}

/// Writes a message to a peer as JSON. This cannot fail for any of these messages.
pub(super) fn encode(message: &impl Serialize) -> String {
    serde_json::to_string(message).unwrap_or_default()
}

fn decode<T: DeserializeOwned>(text: &str) -> Result<T, Fault> {
    serde_json::from_str(text).map_err(|error| {
        Fault::new(libc::EPROTO, format!("malformed answer of another job-exec-rs: {error}"))
    })
}
