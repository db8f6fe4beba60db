//! The state machine of the resume connector: a client's connection to its broker that goes
//! on when the broker is killed and started again.
//!
//! It stands between a client, which sends and receives messages as over `local://`, and a
//! socket that comes and goes. It is pure: time is an argument, messages are data, and the
//! socket is somebody else's. `rfc/0010-connector.md` has the requirements.
//!
//! Whoever drives it calls, in this order:
//! 1. [`Connector::connected`], [`Connector::lost`], [`Connector::refused`] for what becomes
//!    of the socket, [`Connector::receive`] for each message that came over it,
//!    [`Connector::send`] for each message of the client, and [`Connector::timeout`] when the
//!    time of [`Connector::next_timeout`] has come;
//! 2. then [`Connector::for_broker`] and [`Connector::for_client`] until they are empty, and
//!    makes a connection if [`Connector::wants_link`].

mod answers;
mod barrier;
mod connector;
mod flight;
mod frame;
mod ledger;
mod options;
mod packet;
mod policy;
mod requests;
mod restore;
mod standing;
mod watch;

pub use connector::{Connector, Limits, Phase, SendError};
pub use frame::{BUFFER_MAX, Frames, HEADER, Malformed, header};
pub use ledger::MARKERS;
pub use options::{Options, RETRY_COUNT, TIMEOUT};
pub use packet::{ANY_RANK, Header, Kind, NO_TAG, Packet};
pub use policy::{Policy, TABLE, WatchKind};
pub use watch::TAIL_MAX;
