//! What the pure machines need of the world, as traits and plain data.
//!
//! Nothing here blocks and nothing fails inline: a request goes out as data, and its
//! outcome comes back later as an event.

pub mod disk;
mod note;
pub mod supervisor;

pub use note::Note;
