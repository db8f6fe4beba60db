//! A model of one node's state directory, in memory, with faults.
//!
//! It outlives modules and brokers: the supervisor's core has one handle, the world another. The
//! module uses it through [`Disk`]. The world's own calls, and the output of shells
//! ([`SimDisk::write_output`]), work while the module is dead. Nothing is random here: the world
//! says when a fault comes, and passes its random number generator where there is a choice.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use job_exec_rs::port::disk::{Disk, Extent, IfExists};
use job_exec_rs::proto::{UnitName, WaitStatus};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// The directory's path, for messages and output files.
const DIRECTORY: &str = "/state";

/// A handle of a node's state directory.
#[derive(Clone, Debug, Default)]
pub(crate) struct SimDisk {
    state: Arc<Mutex<State>>,
}

/// Counts of calls and failures of a disk.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Counts {
    /// Calls of modules and shells.
    pub(crate) operations: u64,
    /// Writes that failed because there was no space.
    pub(crate) full: u64,
    /// Writes in the middle of which the module died.
    pub(crate) crashes: u64,
    /// Files that lost something in a crash of the node.
    pub(crate) damaged: u64,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<String, File>,
    /// How many bytes can still be written. `None` means that there is no limit.
    room: Option<u64>,
    /// The error of each change, while there is one.
    changes_fail: Option<i32>,
    /// A file to which nothing can be appended.
    broken: Option<String>,
    /// What a file holds as soon as somebody has looked how large it is.
    behind_look: Option<(String, Vec<u8>)>,
    /// The file system cannot reserve space.
    reserves_nothing: bool,
    crash: Option<Crash>,
    /// Whether the module has died and was not started again.
    dead: bool,
    counts: Counts,
}

/// A crash of the module in the middle of a change.
#[derive(Clone, Copy, Debug)]
struct Crash {
    /// How many changes still work before it.
    after: u32,
    /// How many bytes of the change happen.
    bytes: usize,
}

#[derive(Debug)]
struct File {
    bytes: Vec<u8>,
    /// How many bytes have space that nothing else can take.
    reserved: usize,
    /// From which byte on a crash of the node can lose the contents. `None` means that it loses
    /// nothing.
    unsynced_from: Option<usize>,
    /// Whether the file was made since the node was booted. A crash of the node can lose such a
    /// file as a whole.
    new: bool,
}

impl File {
    fn fresh() -> Self {
        Self { bytes: Vec::new(), reserved: 0, unsynced_from: Some(0), new: true }
    }

    fn mark_dirty(&mut self, from: usize) {
        self.unsynced_from = Some(self.unsynced_from.map_or(from, |before| before.min(from)));
    }
}

/// Faults, and what the world sees of the disk. These methods never fail. Only `write_output`
/// counts as an operation.
impl SimDisk {
    /// One with a file system that cannot reserve space.
    pub(crate) fn without_reserves() -> Self {
        let disk = Self::default();
        disk.lock().reserves_nothing = true;
        disk
    }

    /// Sets whether all writes fail with `ENOSPC` for which no space was reserved.
    pub(crate) fn set_full(&self, full: bool) {
        self.set_room(full.then_some(0));
    }

    /// Sets how many bytes can be written before writes, and new files, fail with `ENOSPC`. `None`
    /// removes the limit.
    pub(crate) fn set_room(&self, room: Option<u64>) {
        self.lock().room = room;
    }

    /// Whether writes can fail.
    pub(crate) fn is_short(&self) -> bool {
        let state = self.lock();
        state.room.is_some() || state.changes_fail.is_some()
    }

    /// Whether each change fails.
    pub(crate) fn fails(&self) -> bool {
        self.lock().changes_fail.is_some()
    }

    /// Sets the error with which each change fails, of the module and of shells.
    pub(crate) fn fail_changes(&self, errno: Option<i32>) {
        self.lock().changes_fail = errno;
    }

    /// Has the module die in the middle of a change, after `after` changes that work. Of an append
    /// the first `bytes` bytes are written. Any other change happens unless `bytes` is 0. This call
    /// and all later ones fail until [`begin_life`](SimDisk::begin_life).
    pub(crate) fn crash_in_write(&self, after: u32, bytes: usize) {
        self.lock().crash = Some(Crash { after, bytes });
    }

    /// Whether the module has died in a write. All its calls since then have failed.
    pub(crate) fn is_dead(&self) -> bool {
        self.lock().dead
    }

    /// A module is started. Its calls work again.
    pub(crate) fn begin_life(&self) {
        let mut state = self.lock();
        state.dead = false;
        state.crash = None;
    }

    /// The node crashes, and nothing was synced since it was booted. Each file that was written
    /// since then stays whole, loses its tail, or has zeros in place of the tail. If it was also
    /// made since then, it can be gone. Returns the names of the files that lost something.
    pub(crate) fn lose_unsynced(&self, rng: &mut ChaCha8Rng) -> Vec<String> {
        let mut state = self.lock();
        let mut damaged = Vec::new();
        state.files.retain(|name, file| {
            let new = std::mem::take(&mut file.new);
            let Some(from) = file.unsynced_from.take() else { return true };
            let cut = rng.random_range(from..=file.bytes.len());
            let fate = rng.random_range(0..4);
            match fate {
                0 => return true,
                1 => file.bytes.truncate(cut),
                2 => file.bytes[cut..].fill(0),
                _ if new => {}
                _ => file.bytes.truncate(from),
            }
            damaged.push(name.clone());
            fate != 3 || !new
        });
        state.counts.damaged += damaged.len() as u64;
        damaged
    }

    /// Files of these kinds are lost, or removed by somebody: `record`, `out`, `err`. Returns their names.
    pub(crate) fn lose_files(&self, extensions: &[&str]) -> Vec<String> {
        let mut lost = Vec::new();
        self.lock().files.retain(|name, _| {
            let is_lost = extensions.iter().any(|kind| name.ends_with(&format!(".{kind}")));
            if is_lost {
                lost.push(name.clone());
            }
            !is_lost
        });
        lost
    }

    /// systemd opens an output file of a shell that it is about to execute. A full disk has room for
    /// an empty file.
    pub(crate) fn open_output(&self, name: &str) {
        let state = &mut *self.lock();
        state.files.entry(name.to_string()).or_insert_with(File::fresh);
    }

    /// systemd has a unit under the IMP leave its environment, in which it says how the unit ended. It is
    /// small, and finds room here on a full disk, too.
    pub(crate) fn leave_end(&self, unit: &UnitName, status: WaitStatus) {
        let (code, status) = match (status.code(), status.signal()) {
            (Some(code), _) => ("exited", code),
            (None, signal) => ("killed", signal.unwrap_or(0)),
        };
        let text = format!("PATH=/bin\0EXIT_CODE={code}\0EXIT_STATUS={status}\0");
        let file = File { bytes: text.into_bytes(), ..File::fresh() };
        self.lock().files.insert(format!("{}.end", unit.stem()), file);
    }

    /// A shell, or systemd for it, writes to one of its output files. Returns how many bytes were
    /// written.
    pub(crate) fn write_output(&self, path: &Path, bytes: &[u8]) -> usize {
        let mut state = self.lock();
        state.counts.operations += 1;
        let name = file_name(path);
        let before = state.files.get(name).map_or(0, |file| file.bytes.len());
        // What does not fit is lost, as the output of a real shell is.
        let _ = state.append(name, bytes);
        state.files.get(name).map_or(0, |file| file.bytes.len()) - before
    }

    /// All files.
    pub(crate) fn files(&self) -> Vec<String> {
        self.lock().files.keys().cloned().collect()
    }

    /// Whether there is such a file.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.lock().files.contains_key(name)
    }

    /// What is in a file.
    #[cfg(test)]
    pub(crate) fn contents(&self, name: &str) -> Option<Vec<u8>> {
        self.lock().files.get(name).map(|file| file.bytes.clone())
    }

    /// Nothing can be appended to this file any more.
    #[cfg(test)]
    pub(crate) fn break_file(&self, name: &str) {
        self.lock().broken = Some(name.to_string());
    }

    /// A shell empties this file, and writes to it, just after somebody has looked how large it is.
    #[cfg(test)]
    pub(crate) fn empty_behind_look(&self, name: &str, bytes: &[u8]) {
        self.lock().behind_look = Some((name.to_string(), bytes.to_vec()));
    }

    /// What happened so far.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> Counts {
        self.lock().counts
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a call of the module that reads.
    fn look(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.lock();
        state.counts.operations += 1;
        if state.dead { Err(error(libc::EIO)) } else { Ok(state) }
    }

    /// Makes a change of the module other than an append.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.look()?;
        if let Some(errno) = state.changes_fail {
            return Err(error(errno));
        }
        match state.crash_now() {
            None => change(&mut state),
            Some(bytes) => {
                if bytes > 0 {
                    // The module is dead, so nobody gets the result.
                    let _ = change(&mut state);
                }
                Err(state.die())
            }
        }
    }
}

impl State {
    /// How many bytes of this change happen, if the module dies in it.
    fn crash_now(&mut self) -> Option<usize> {
        let crash = self.crash.as_mut()?;
        if crash.after > 0 {
            crash.after -= 1;
            return None;
        }
        self.crash.take().map(|crash| crash.bytes)
    }

    fn die(&mut self) -> io::Error {
        self.dead = true;
        self.counts.crashes += 1;
        error(libc::EIO)
    }

    fn file(&mut self, name: &str) -> io::Result<&mut File> {
        self.files.get_mut(name).ok_or_else(|| error(libc::ENOENT))
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let room = self.room.map_or(usize::MAX, |room| usize::try_from(room).unwrap_or(usize::MAX));
        let broken = (self.broken.as_deref() == Some(name)).then_some(libc::EIO);
        if let Some(errno) = self.changes_fail.or(broken) {
            return Err(error(errno));
        }
        let file = self.file(name)?;
        let reserved = file.reserved.saturating_sub(file.bytes.len());
        let fits = bytes.len().min(room.saturating_add(reserved));
        if fits > 0 {
            file.mark_dirty(file.bytes.len());
            file.bytes.extend_from_slice(&bytes[..fits]);
        }
        if let Some(room) = &mut self.room {
            *room -= fits.saturating_sub(reserved) as u64;
        }
        if fits < bytes.len() {
            return Err(self.fail_full());
        }
        Ok(())
    }

    fn create(&mut self, name: &str, exists: IfExists, room: u64) -> io::Result<()> {
        match self.files.get_mut(name) {
            Some(_) if exists == IfExists::Fail => return Err(error(libc::EEXIST)),
            Some(file) if exists == IfExists::Truncate => {
                file.bytes.clear();
                file.reserved = 0;
                file.mark_dirty(0);
            }
            Some(_) => {}
            None if self.room == Some(0) => return Err(self.fail_full()),
            None => {
                self.files.insert(name.to_string(), File::fresh());
            }
        }
        self.reserve(name, room)
    }

    fn reserve(&mut self, name: &str, room: u64) -> io::Result<()> {
        if self.reserves_nothing {
            return Ok(());
        }
        let file = self.file(name)?;
        let has = file.reserved.max(file.bytes.len()) as u64;
        let needs = room.saturating_sub(has);
        if self.room.is_some_and(|left| left < needs) {
            return Err(self.fail_full());
        }
        if let Some(left) = &mut self.room {
            *left -= needs;
        }
        let file = self.file(name)?;
        file.reserved = file.reserved.max(usize::try_from(room).unwrap_or(usize::MAX));
        Ok(())
    }

    fn fail_full(&mut self) -> io::Error {
        self.counts.full += 1;
        error(libc::ENOSPC)
    }
}

impl Disk for SimDisk {
    fn path(&self, name: &str) -> PathBuf {
        Path::new(DIRECTORY).join(name)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.look()?.files.keys().cloned().collect())
    }

    fn create(&self, name: &str, exists: IfExists, room: u64) -> io::Result<()> {
        self.change(|state| state.create(name, exists, room))
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        Ok(self.look()?.file(name)?.bytes.clone())
    }

    fn read_at(
        &self,
        name: &str,
        offset: u64,
        buffer: &mut [u8],
    ) -> io::Result<Option<(u64, usize)>> {
        let mut state = self.look()?;
        let bytes = &state.file(name)?.bytes;
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let n = buffer.len().min(bytes.len() - from);
        buffer[..n].copy_from_slice(&bytes[from..from + n]);
        Ok((n > 0).then_some((offset, n)))
    }

    fn extent(&self, name: &str) -> io::Result<Extent> {
        let mut state = self.look()?;
        let size = state.file(name)?.bytes.len() as u64;
        if let Some((name, bytes)) = state.behind_look.take_if(|(of, _)| of == name) {
            state.file(&name)?.bytes = bytes;
        }
        Ok(Extent { size, allocated: size })
    }

    fn has_writer(&self, name: &str) -> io::Result<bool> {
        self.look()?.file(name).map(|_| false)
    }

    fn append(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.look()?;
        match state.crash_now() {
            None => state.append(name, bytes),
            Some(crash) => {
                let _ = state.append(name, &bytes[..crash.min(bytes.len())]);
                Err(state.die())
            }
        }
    }

    fn set_length(&self, name: &str, length: u64) -> io::Result<()> {
        self.change(|state| {
            let file = state.file(name)?;
            let length = usize::try_from(length).map_err(|_| error(libc::EFBIG))?;
            file.mark_dirty(length.min(file.bytes.len()));
            file.reserved = file.reserved.min(length);
            file.bytes.resize(length, 0);
            Ok(())
        })
    }

    fn punch(&self, name: &str, offset: u64, length: u64) -> io::Result<()> {
        self.change(|state| {
            let bytes = &mut state.file(name)?.bytes;
            let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX).min(bytes.len());
            let (from, to) = (at(offset), at(offset.saturating_add(length)));
            bytes[from..to].fill(0);
            Ok(())
        })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.change(|state| {
            let file = state.files.remove(from).ok_or_else(|| error(libc::ENOENT))?;
            state.files.insert(to.to_string(), file);
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.change(|state| state.files.remove(name).map(drop).ok_or_else(|| error(libc::ENOENT)))
    }
}

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

fn error(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

#[cfg(test)]
mod core_tests;
#[cfg(test)]
mod tests;
