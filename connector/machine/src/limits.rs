//! Limits of one connection.

/// How much the connector keeps, and how long it waits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Bytes of requests that are kept for the client: those that wait for the broker, and
    /// those that wait for an answer. Past this limit the client may not send.
    pub retained_max: usize,
    /// Bytes of done commits that are kept until a checkpoint has them.
    pub commits_max: usize,
    /// Seconds that the broker may be away; then the connection ends.
    pub give_up_after: f64,
    /// Seconds after the return of the broker during which missing services and namespaces are
    /// expected to return as well.
    pub patience: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            retained_max: 16 << 20,
            commits_max: 8 << 20,
            give_up_after: 7.0 * 86400.0,
            patience: 600.0,
        }
    }
}
