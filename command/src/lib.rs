//! What the command line, the program for developers and tests share: an instance inside one process, and
//! how it is shown.

pub mod console;
pub mod embedded;
pub mod failure;
pub mod log;
pub mod method;
pub mod signals;
