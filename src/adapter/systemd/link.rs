//! The connection to the bus, and how it is made again.

use std::fs::File;
use std::time::Duration;

use tokio::task::JoinHandle;

use super::bus::{Bus, Incoming};
use super::error::SystemdError;

/// Wait before the second attempt to connect; doubled each time.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
/// Longest wait between two attempts.
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// An attempt to connect.
type Connecting = JoinHandle<Result<Box<Bus>, SystemdError>>;

/// The connection to the bus.
#[derive(Debug)]
pub(super) enum Connection {
    /// There is no connection.
    Down {
        /// The attempt to connect, if one is under way.
        connecting: Option<Connecting>,
        /// Holds the descriptor of the next connection.
        held: Option<File>,
    },
    /// There is a connection.
    Up(Box<Bus>),
}

/// What happens on a [`Connection`].
#[derive(Debug)]
pub(super) enum Happening {
    /// An attempt to connect has ended.
    Connected(Result<Box<Bus>, SystemdError>),
    /// A message came in, or the connection was lost.
    Incoming(Incoming),
}

impl Connection {
    /// No connection. Its descriptor is held for the next one: the broker may have none left then.
    pub(super) fn down() -> Self {
        Self::Down { connecting: None, held: File::open("/dev/null").ok() }
    }

    /// The bus, if there is a connection.
    pub(super) fn bus(&mut self) -> Option<&mut Bus> {
        match self {
            Connection::Up(bus) => Some(bus),
            Connection::Down { .. } => None,
        }
    }

    /// Wait for what happens next. May be dropped and called again, because an attempt to connect
    /// is a task of its own.
    pub(super) async fn next(&mut self, address: &str, attempts: u32) -> Happening {
        match self {
            Connection::Up(bus) => Happening::Incoming(bus.receive().await),
            Connection::Down { connecting, held } => {
                let connect = || connect(address, attempts, held.take());
                let task = connecting.get_or_insert_with(connect);
                match task.await {
                    Ok(result) => Happening::Connected(result),
                    // The task is only cancelled when the runtime ends, and this future with it.
                    Err(_) => std::future::pending().await,
                }
            }
        }
    }
}

fn connect(address: &str, attempts: u32, held: Option<File>) -> Connecting {
    let address = address.to_string();
    let wait = match attempts {
        0 => Duration::ZERO,
        n => BACKOFF_MIN.saturating_mul(1 << n.min(16)).min(BACKOFF_MAX),
    };
    tokio::spawn(async move {
        tokio::time::sleep(wait).await;
        drop(held);
        Bus::connect(&address).await.map(Box::new)
    })
}
