//! The state machine of the resume connector: a client's connection to its broker that
//! survives when the broker is killed and started again.
//!
//! The machine is between a client, which sends and receives messages as over `local://`, and a
//! socket that can be lost and made again. It is pure: time is an argument, messages are data,
//! and its driver owns the socket. `rfc/0010-connector.md` has the requirements.
//!
//! The driver calls, in this order:
//! 1. [`Connector::connected`], [`Connector::lost`], [`Connector::refused`] when the state of
//!    the socket changes, [`Connector::receive`] for each message from the socket,
//!    [`Connector::send`] for each message of the client, and [`Connector::timeout`] at the
//!    time of [`Connector::next_timeout`];
//! 2. then [`Connector::for_broker`] and [`Connector::for_client`] until they are empty. If
//!    [`Connector::wants_link`] is true, the driver tries to connect.

mod barrier;
mod channel;
mod connector;
mod context;
mod errnum;
mod flight;
mod flights;
mod frame;
mod inbox;
mod inquiry;
mod leader;
mod ledger;
mod ledgers;
mod link;
mod namespace;
mod options;
mod outbox;
mod packet;
mod policy;
mod question;
mod run;
mod standing;
mod watch;
mod wire;

pub use connector::{Connector, SendError};
pub use frame::{BUFFER_MAX, Frames, HEADER, Malformed, header};
pub use ledger::{RUN_KEY, is_users, own_key};
pub use link::Phase;
pub use options::{Limits, Options, OptionsError, RETRY_COUNT, TIMEOUT};
pub use packet::{ANY_RANK, Header, Kind, NO_TAG, Packet};
pub use policy::{Policy, TABLE, WatchKind};
pub use run::Run;
pub use standing::ends_shell;
pub use watch::TAIL_MAX;
