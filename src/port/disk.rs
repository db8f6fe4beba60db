//! The state directory of one rank: records, and what shells wrote.
//!
//! Files are known by their names in that one directory. A call works at once or fails with an
//! error. Nothing is synced, so a crash of the node can lose what was written since it was booted.

use std::fmt::Debug;
use std::io;
use std::path::PathBuf;

/// What to do if the file to be created exists already.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum IfExists {
    /// Leave it as it is, and fail with [`AlreadyExists`](io::ErrorKind).
    Fail,
    /// Leave it as it is.
    Keep,
    /// Make it empty.
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
    /// The path of a file, for messages and for other programs on the node. The file need not
    /// exist.
    fn path(&self, name: &str) -> PathBuf;

    /// The names of all files, in no order. Names that are not UTF-8 are left out, because this
    /// module makes none.
    ///
    /// # Errors
    ///
    /// If the file system reports one.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Make an empty file that only the instance owner can read. Its first `room` bytes get space
    /// that nothing else can take, if the file system can do that. [`set_length`](Self::set_length)
    /// may give it back. If the directory was removed, it is made again.
    ///
    /// # Errors
    ///
    /// If the file could not be made or there is no such space, or if it exists and `exists` is
    /// [`IfExists::Fail`]. It may have been made if there is no space.
    fn create(&self, name: &str, exists: IfExists, room: u64) -> io::Result<()>;

    /// All bytes of a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or if there is no such file. The calls below fail without a
    /// file, too.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;

    /// Read from the first byte at or after `offset` that is not in a hole, as much as `buffer`
    /// holds. Returns that byte's offset, and how many bytes were read; `None` if only a hole
    /// follows, or the end of the file.
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
    /// If it cannot be found out.
    fn extent(&self, name: &str) -> io::Result<Extent>;

    /// Whether a process has the file open for writing. False if that cannot be found out.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened.
    fn has_writer(&self, name: &str) -> io::Result<bool>;

    /// Write at the end.
    ///
    /// # Errors
    ///
    /// If not all bytes were written. The first ones may have been.
    fn append(&self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// Truncate the file to `length` bytes, or extend it with a hole.
    ///
    /// # Errors
    ///
    /// If that failed; the file is unchanged then.
    fn set_length(&self, name: &str, length: u64) -> io::Result<()>;

    /// Punch a hole: give the space of these bytes back to the file system. They read as zeros
    /// then, and offsets do not change. Does nothing if the file system cannot do that.
    ///
    /// # Errors
    ///
    /// If that failed; the file is unchanged then.
    fn punch(&self, name: &str, offset: u64, length: u64) -> io::Result<()>;

    /// Rename a file atomically. A file of the new name is replaced.
    ///
    /// # Errors
    ///
    /// If that failed; both files are unchanged then.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Remove a file.
    ///
    /// # Errors
    ///
    /// If the file is still there, or if there was none.
    fn remove(&self, name: &str) -> io::Result<()>;
}
