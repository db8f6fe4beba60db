//! What the command line and its tests share: an instance inside one process.

pub mod embedded;
