//! The state directory of one rank: records, and what shells wrote.
//!
//! Files are known by their names in that one directory. A call either works at once or fails
//! with an error; nothing is synced, so that a crash of the node may take what was written since
//! it was booted.

use std::fmt::Debug;
use std::io;
use std::path::PathBuf;

/// What is done if a file that is to be created is there already.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum IfExists {
    /// It stays as it is, and that is an error of kind [`AlreadyExists`](io::ErrorKind).
    Fail,
    /// It stays as it is.
    Keep,
    /// It becomes empty.
    Truncate,
}

/// How large a file is, in bytes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Extent {
    /// From its beginning to its end, holes included.
    pub size: u64,
    /// Space on the disk: less than `size` with holes, more where space was reserved.
    pub allocated: u64,
}

/// The files of one directory.
pub trait Disk: Debug + Send + Sync {
    /// What other programs on the node, and messages, call a file. It need not exist.
    fn path(&self, name: &str) -> PathBuf;

    /// All files, in no order. Names that are not UTF-8 are nobody's and left out.
    ///
    /// # Errors
    ///
    /// As the file system has it, here and below.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Make an empty file, which only the instance owner can read.
    ///
    /// # Errors
    ///
    /// If there is no such file after the call, or if `exists` says so.
    fn create(&self, name: &str, exists: IfExists) -> io::Result<()>;

    /// All bytes of a file.
    ///
    /// # Errors
    ///
    /// Also if there is no such file; as all calls from here on.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;

    /// Bytes from the first one at or behind `offset` that is in no hole: where they begin, and
    /// how many there are or fit. None, if there is only a hole, or nothing.
    ///
    /// # Errors
    ///
    /// If nothing was read.
    fn read_at(
        &self,
        name: &str,
        offset: u64,
        buffer: &mut [u8],
    ) -> io::Result<Option<(u64, usize)>>;

    /// How large a file is.
    ///
    /// # Errors
    ///
    /// If it cannot be said.
    fn extent(&self, name: &str) -> io::Result<Extent>;

    /// Whether a process has the file open for writing. Where that cannot be seen: no.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened.
    fn has_writer(&self, name: &str) -> io::Result<bool>;

    /// Write at the end.
    ///
    /// # Errors
    ///
    /// If not all was written. Some may have been, from the first byte on.
    fn append(&self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// Cut off what is behind `length`.
    ///
    /// # Errors
    ///
    /// If the file is as it was.
    fn set_length(&self, name: &str, length: u64) -> io::Result<()>;

    /// Give space in the middle back; it reads as zeros, and nothing moves. Where the file
    /// system cannot do that nothing happens.
    ///
    /// # Errors
    ///
    /// If the file is as it was.
    fn punch(&self, name: &str, offset: u64, length: u64) -> io::Result<()>;

    /// Give a file another name, in one step. A file of that name is replaced.
    ///
    /// # Errors
    ///
    /// If both are as they were.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Remove a file.
    ///
    /// # Errors
    ///
    /// If it is still there, or never was.
    fn remove(&self, name: &str) -> io::Result<()>;
}
