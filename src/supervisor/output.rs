//! Reading what shells wrote to their output files.
//!
//! The files outlive this process, so a shell is never stalled or killed because its reader is
//! gone. Bytes that a checkpoint of the KVS holds are given back to the disk by punching holes, which
//! does not move the rest. But the shell can empty its file: `echo x >/dev/stderr` opens it anew, with
//! `O_TRUNC`. Then the stream goes on with what the file holds now. So an offset in the stream is one
//! in the file after a base. All offsets here are the stream's, where nothing else is said.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::port::disk::{Disk, Extent};
use crate::port::supervisor::{Limits, OUTPUT_CHUNK_BYTES, OUTPUT_WINDOW_BYTES};
use crate::proto::{Stream, UnitName};

/// Space is given back to the disk in steps of this many bytes.
const PUNCH_STEP_BYTES: u64 = 1024 * 1024;

/// Space that a file may take beyond the bytes that are kept before some is given back, in bytes.
/// File systems reserve space after the end of a file that grows.
const SPARE_BYTES: u64 = 1024 * 1024;

/// How many of the last bytes that were read are compared with the file before more is read.
const COMPARED_BYTES: usize = 64;

/// What is lost when a file was emptied.
const EMPTIED: &str = "its file on the node was emptied, as by `>/dev/stderr` (not by `>>`): what was \
                       not read before is lost";

/// The reader of one output file.
#[derive(Debug)]
pub(super) struct OutputTail {
    disk: Arc<dyn Disk>,
    name: String,
    limits: Limits,
    /// The leader has all bytes before this, except for those in holes. `None`: the leader has not
    /// said yet where to begin.
    acked: Option<u64>,
    /// A checkpoint of the KVS holds all bytes before this, so nobody asks for them again.
    checkpointed: u64,
    /// Where the file begins.
    base: u64,
    /// Bytes before this were sent.
    sent: u64,
    /// The last of the bytes that were sent.
    last: Vec<u8>,
    /// How large the file was when it was looked at, in bytes of the file.
    seen: u64,
    /// The file may be shorter than what was read of it, although nobody has emptied it: the node has
    /// crashed.
    is_damaged: bool,
    /// Bytes before this were given back to the disk.
    punched: u64,
    /// Nobody wants the rest.
    discarded: bool,
    /// Why bytes may be missing from what was sent.
    lost: Option<String>,
    /// The furthest end of the stream that was seen, and the most space that the file was seen to have.
    most: Extent,
}

impl OutputTail {
    /// A stream that begins now. Its output may be sent at once.
    pub(super) fn fresh(disk: &Arc<dyn Disk>, name: String, limits: Limits) -> Self {
        Self {
            disk: Arc::clone(disk),
            name,
            limits,
            acked: Some(0),
            checkpointed: 0,
            base: 0,
            sent: 0,
            last: Vec::new(),
            seen: 0,
            is_damaged: false,
            punched: 0,
            discarded: false,
            lost: None,
            most: Extent::default(),
        }
    }

    /// The stream of a unit from an earlier life. Nothing is sent before an acknowledgement says
    /// where to begin. `base` is where the file begins, as the record has it.
    pub(super) fn found(
        disk: &Arc<dyn Disk>,
        name: String,
        limits: Limits,
        base: u64,
        is_damaged: bool,
    ) -> Self {
        Self { acked: None, base, punched: base, is_damaged, ..Self::fresh(disk, name, limits) }
    }

    /// The leader has all bytes before `offset`, and a checkpoint all bytes before `checkpointed`.
    /// `u64::MAX`: nobody wants the rest.
    pub(super) fn ack(&mut self, offset: u64, checkpointed: u64) {
        if offset == u64::MAX {
            self.discarded = true;
            return;
        }
        match self.acked {
            None => {
                self.sent = offset.max(self.base);
                self.acked = Some(self.sent);
                if offset < self.base {
                    self.lost = Some(EMPTIED.to_string());
                }
            }
            Some(acked) => {
                if offset > self.sent {
                    tracing::debug!(path = %self.path().display(), offset, sent = self.sent,
                        "acknowledgement of output that was not sent");
                }
                self.acked = Some(acked.max(offset.min(self.sent)));
            }
        }
        self.checkpointed = self.checkpointed.max(checkpointed.min(offset));
        if let Err(e) = self.punch() {
            tracing::debug!(path = %self.path().display(), error = %e, "cannot punch a hole");
        }
    }

    /// Looks whether the file was emptied. If it was, what it holds now is the stream's next, and the
    /// new base is returned: it must be on the disk before any of that is sent.
    pub(super) fn find_emptied(&mut self) -> Option<u64> {
        if self.discarded || self.acked.is_none() {
            return None;
        }
        // `pump` tells errors.
        let size = self.disk.extent(&self.name).ok()?.size;
        let is_shorter = size < self.seen || self.base.saturating_add(size) < self.sent;
        let is_emptied = !self.is_damaged && (is_shorter || self.is_another());
        // It may have been emptied after it was looked at: then the size is one from before.
        self.seen = if is_emptied { 0 } else { size };
        if !is_emptied {
            return None;
        }
        self.base = self.sent;
        self.last.clear();
        self.punched = self.punched.max(self.base);
        self.lost.get_or_insert_with(|| EMPTIED.to_string());
        Some(self.base)
    }

    /// The file does not hold any more what was read last.
    fn is_another(&self) -> bool {
        let begin = self.sent.saturating_sub(self.last.len() as u64);
        if self.last.is_empty() || begin < self.punched.max(self.base) {
            return false;
        }
        let mut data = vec![0; self.last.len()];
        match self.disk.read_at(&self.name, begin - self.base, &mut data) {
            Ok(Some((from, n))) => from != begin - self.base || data[..n] != self.last[..n],
            Ok(None) => true,
            Err(_) => false,
        }
    }

    /// Send new output, as far as the window allows. Returns true if no output is left.
    pub(super) fn pump(&mut self, emit: &mut dyn FnMut(u64, Vec<u8>)) -> bool {
        match self.try_pump(emit) {
            Ok(all) => all,
            // Waiting would not make these bytes readable.
            Err(e) => {
                if self.lost.is_none() && !self.discarded {
                    self.lost = Some(self.explain(&e));
                }
                true
            }
        }
    }

    fn explain(&self, error: &io::Error) -> String {
        if error.kind() == io::ErrorKind::NotFound {
            return "its file on the node was lost".to_string();
        }
        tracing::warn!(path = %self.path().display(), offset = self.sent, %error,
            "cannot read output");
        format!("its file on the node cannot be read: {error}")
    }

    /// Why bytes may be missing from what was sent: the file is gone, was emptied, or cannot be read.
    pub(super) fn lost(&self) -> Option<&str> {
        self.lost.as_deref()
    }

    /// The space that the file takes, if it is so much that the job is to be ended.
    pub(super) fn overflow(&self) -> Option<u64> {
        (self.most.allocated > self.limits.disk).then_some(self.most.allocated)
    }

    /// If the stream is longer than its limit: the limit, and how many bytes follow it.
    pub(super) fn truncated(&self) -> Option<(u64, u64)> {
        let size = self.disk.extent(&self.name).map_or(0, |extent| extent.size);
        let dropped =
            self.base.saturating_add(size).max(self.most.size).saturating_sub(self.limits.stream);
        (dropped > 0).then_some((self.limits.stream, dropped))
    }

    fn path(&self) -> PathBuf {
        self.disk.path(&self.name)
    }

    fn try_pump(&mut self, emit: &mut dyn FnMut(u64, Vec<u8>)) -> io::Result<bool> {
        let extent = self.disk.extent(&self.name)?;
        self.free_excess(extent);
        if self.discarded {
            return Ok(true);
        }
        let size = self.base.saturating_add(extent.size).min(self.limits.stream);
        loop {
            let Some(acked) = self.acked else { return Ok(extent.size == 0) };
            let end = size.min(acked.saturating_add(OUTPUT_WINDOW_BYTES));
            if self.sent >= end {
                return Ok(self.sent >= size);
            }
            let length = (end - self.sent).min(OUTPUT_CHUNK_BYTES as u64) as usize;
            let mut data = vec![0; length];
            let read = self.disk.read_at(&self.name, self.sent - self.base, &mut data)?;
            let read = read.map(|(from, n)| (self.base.saturating_add(from), n));
            let (from, n) = read.filter(|(from, _)| *from < size).unwrap_or((size, 0));
            if from > self.sent {
                // The shell did not write the bytes of a hole.
                self.skip(from);
                continue;
            }
            data.truncate(n);
            let offset = self.sent;
            self.sent += n as u64;
            self.last.extend_from_slice(&data[n.saturating_sub(COMPARED_BYTES)..]);
            self.last.drain(..self.last.len().saturating_sub(COMPARED_BYTES));
            emit(offset, data);
        }
    }

    /// Skip a hole. Its bytes do not count against the window.
    fn skip(&mut self, to: u64) {
        let hole = to.saturating_sub(self.sent);
        self.acked = self.acked.map(|acked| acked.saturating_add(hole));
        self.sent = to;
        self.last.clear();
    }

    /// Give the space of bytes that nobody will read back to the disk. The shell can take more at
    /// any time and anywhere in the file, so this is checked whenever the file has changed.
    fn free_excess(&mut self, extent: Extent) {
        self.most.size = self.most.size.max(self.base.saturating_add(extent.size));
        self.most.allocated = self.most.allocated.max(extent.allocated);
        let kept = if self.discarded { 0 } else { self.limits.stream.saturating_sub(self.base) };
        if extent.allocated <= kept.saturating_mul(2).saturating_add(SPARE_BYTES) {
            return;
        }
        if let Err(e) = self.give_back(kept, extent) {
            tracing::warn!(path = %self.path().display(), allocated = extent.allocated, error = %e,
                "cannot give back the space of output past its limit");
        }
    }

    /// The first so many bytes of the file are kept.
    fn give_back(&mut self, kept: u64, extent: Extent) -> io::Result<()> {
        if extent.size > kept {
            self.disk.punch(&self.name, kept, extent.size - kept)?;
        }
        if self.disk.extent(&self.name)?.allocated < extent.allocated {
            return Ok(());
        }
        // The space is reserved after the end of the file, or the file system has no holes.
        self.seen = self.seen.min(kept);
        self.disk.set_length(&self.name, extent.size.min(kept))
    }

    fn punch(&mut self) -> io::Result<()> {
        let compared = self.sent.saturating_sub(self.last.len() as u64);
        let end = self.checkpointed.min(compared) / PUNCH_STEP_BYTES * PUNCH_STEP_BYTES;
        if end <= self.punched {
            return Ok(());
        }
        let (from, length) = (self.punched.saturating_sub(self.base), end - self.punched);
        match self.disk.punch(&self.name, from, length) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            tried => {
                // This is not tried again. The space is free at the latest when the file is
                // removed.
                self.punched = end;
                tried
            }
        }
    }
}

/// The name of a stream's file, after the unit's stem.
pub(super) fn extension(stream: Stream) -> &'static str {
    match stream {
        Stream::Stdout => "out",
        Stream::Stderr => "err",
    }
}

/// Which output files grew, and which files are gone.
#[derive(Debug)]
pub enum Grown {
    /// Events were lost: any file may have grown, or may be gone.
    Any,
    /// These files.
    These {
        /// Output files of units. They can have been removed as well.
        files: BTreeSet<(UnitName, Stream)>,
        /// Units whose records were removed.
        records: BTreeSet<UnitName>,
        /// Files that were set aside have grown, too.
        strays: bool,
    },
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::io::Write;

    use nix::errno::Errno;
    use nix::fcntl::{FallocateFlags, fallocate};

    use super::*;
    use crate::adapter::host::HostDisk;

    const MIB: u64 = 1024 * 1024;
    const LIMITS: Limits = Limits { starts_in_flight: 1, stream: 8 * MIB, disk: 20 * MIB };

    fn pump(tail: &mut OutputTail) -> (bool, Vec<(u64, usize)>) {
        let mut sent = Vec::new();
        let all = tail.pump(&mut |offset, data| sent.push((offset, data.len())));
        (all, sent)
    }

    fn disk() -> (Arc<dyn Disk>, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        (Arc::new(HostDisk::open(dir.path()).unwrap()), dir)
    }

    #[test]
    fn the_window_holds_output_back() {
        let (disk, dir) = disk();
        let path = dir.path().join("x.out");
        let mut tail = OutputTail::fresh(&disk, "x.out".to_string(), LIMITS);
        assert_eq!(pump(&mut tail), (true, vec![]), "no file yet");
        let size = OUTPUT_WINDOW_BYTES + 10;
        std::fs::write(&path, vec![b'x'; size as usize]).unwrap();
        let (all, sent) = pump(&mut tail);
        assert!(!all);
        assert!(sent.iter().all(|(_, n)| *n == OUTPUT_CHUNK_BYTES));
        assert_eq!(sent.len() as u64, OUTPUT_WINDOW_BYTES / OUTPUT_CHUNK_BYTES as u64);
        assert_eq!(pump(&mut tail), (false, vec![]));
        tail.ack(4, 0);
        assert_eq!(pump(&mut tail), (false, vec![(OUTPUT_WINDOW_BYTES, 4)]));
        tail.ack(OUTPUT_WINDOW_BYTES + 4, 0);
        assert_eq!(pump(&mut tail), (true, vec![(OUTPUT_WINDOW_BYTES + 4, 6)]));
        std::fs::write(&path, vec![b'x'; size as usize * 2]).unwrap();
        tail.ack(u64::MAX, 0);
        assert_eq!(pump(&mut tail), (true, vec![]), "nobody wants the rest");
    }

    /// [missing-said]
    #[test]
    fn what_cannot_be_read_is_said_to_be_lost() {
        let (disk, dir) = disk();
        let path = dir.path().join("x.out");
        let mut tail = OutputTail::fresh(&disk, "x.out".to_string(), LIMITS);
        std::fs::write(&path, "01234").unwrap();
        assert_eq!(pump(&mut tail), (true, vec![(0, 5)]));
        assert_eq!(tail.lost(), None);
        // A link is not followed.
        std::fs::rename(&path, dir.path().join("other")).unwrap();
        std::os::unix::fs::symlink("other-than-before", &path).unwrap();
        assert_eq!(pump(&mut tail), (true, vec![]), "nobody waits for the rest");
        assert!(tail.lost().is_some_and(|why| why.contains("cannot be read: Too many levels")));
        std::fs::remove_file(&path).unwrap();
        let mut tail = OutputTail::fresh(&disk, "x.out".to_string(), LIMITS);
        tail.ack(u64::MAX, 0);
        assert_eq!(pump(&mut tail), (true, vec![]));
        assert_eq!(tail.lost(), None, "nobody wants it");
    }

    #[test]
    fn a_found_stream_begins_where_the_first_ack_says() {
        let (disk, dir) = disk();
        let path = dir.path().join("x.out");
        let mut tail = OutputTail::found(&disk, "x.out".to_string(), LIMITS, 0, false);
        assert_eq!(pump(&mut tail), (true, vec![]), "empty: nothing to wait for");
        std::fs::write(&path, "0123456789").unwrap();
        assert_eq!(pump(&mut tail), (false, vec![]));
        tail.ack(7, 0);
        assert_eq!(pump(&mut tail), (true, vec![(7, 3)]));
    }

    /// What a shell's `>` does to /dev/stderr.
    fn empty_and_write(dir: &tempfile::TempDir, text: &str) {
        std::fs::write(dir.path().join("x.out"), text).unwrap();
    }

    /// What is told of the stream, and where its file begins if it was emptied.
    fn read(tail: &mut OutputTail) -> (Option<u64>, Vec<(u64, String)>) {
        let base = tail.find_emptied();
        let mut told = Vec::new();
        let text = |data| String::from_utf8(data).expect("text");
        assert!(tail.pump(&mut |offset, data| told.push((offset, text(data)))));
        (base, told)
    }

    /// [output-emptied]
    #[test]
    fn what_is_written_after_a_file_was_emptied_is_told_once_and_in_order() {
        let (disk, dir) = disk();
        let mut tail = OutputTail::fresh(&disk, "x.out".to_string(), LIMITS);
        let mut shell = file(&dir);
        let told = |offset, text: &str| vec![(offset, text.to_string())];
        shell.write_all(b"one\ntwo\n").unwrap();
        assert_eq!(read(&mut tail), (None, told(0, "one\ntwo\n")));
        assert_eq!(tail.lost(), None);
        for (text, base) in [("x\n", 8), ("longer than before\n", 14), ("other\n", 37)] {
            empty_and_write(&dir, text);
            let length = text.len() as u64;
            assert_eq!(read(&mut tail), (Some(base), told(base, text)));
            assert!(tail.lost().is_some_and(|why| why.contains("emptied")));
            shell.write_all(b"more").unwrap();
            assert_eq!(read(&mut tail), (None, told(base + length, "more")));
            assert_eq!(read(&mut tail), (None, vec![]));
        }
        empty_and_write(&dir, "as long as");
        assert_eq!(read(&mut tail), (Some(47), told(47, "as long as")));
        empty_and_write(&dir, "");
        assert_eq!(read(&mut tail), (Some(57), vec![]));
        shell.write_all(b"last").unwrap();
        assert_eq!(read(&mut tail), (None, told(57, "last")));
    }

    /// [output-emptied]
    #[test]
    fn a_later_life_goes_on_where_the_file_begins() {
        let (disk, dir) = disk();
        let found = |base, is_damaged| {
            OutputTail::found(&disk, "x.out".to_string(), LIMITS, base, is_damaged)
        };
        let told = |offset, text: &str| vec![(offset, text.to_string())];
        empty_and_write(&dir, "0123456789");
        let mut tail = found(100, false);
        tail.ack(104, 104);
        assert_eq!(read(&mut tail), (None, told(104, "456789")));
        let mut tail = found(100, false);
        tail.ack(60, 0);
        assert_eq!(read(&mut tail), (None, told(100, "0123456789")));
        assert!(tail.lost().is_some(), "what was before it");
        let mut tail = found(100, false);
        tail.ack(111, 111);
        assert_eq!(read(&mut tail), (Some(111), told(111, "0123456789")), "emptied meanwhile");
        let mut tail = found(100, true);
        tail.ack(111, 111);
        assert_eq!(read(&mut tail), (None, vec![]), "the node has crashed: it was told before");
    }

    /// [output-emptied]
    #[test]
    fn an_emptied_file_has_the_limits_of_its_stream() {
        let (disk, dir) = disk();
        let mut tail = OutputTail::fresh(&disk, "x.out".to_string(), LIMITS);
        let mut sent = 0;
        for piece in [b'x', b'y', b'z'] {
            std::fs::write(dir.path().join("x.out"), vec![piece; 3 * MIB as usize]).unwrap();
            tail.find_emptied();
            sent += pump_all(&mut tail).iter().map(|(_, n)| *n as u64).sum::<u64>();
            tail.ack(sent, sent);
        }
        assert_eq!(sent, LIMITS.stream);
        assert_eq!(tail.truncated(), Some((LIMITS.stream, MIB)));
        // Of the last file only what a checkpoint has is given back, in whole steps.
        assert_eq!((tail.base, tail.punched), (6 * MIB, 7 * MIB));
        assert_eq!(disk.read("x.out").unwrap()[MIB as usize..], vec![b'z'; 2 * MIB as usize]);
    }

    #[test]
    fn space_behind_a_checkpoint_is_given_back() {
        use std::os::unix::fs::MetadataExt;
        let (disk, dir) = disk();
        let path = dir.path().join("x.out");
        std::fs::write(&path, vec![b'x'; 4 * PUNCH_STEP_BYTES as usize]).unwrap();
        let mut tail = OutputTail::found(&disk, "x.out".to_string(), LIMITS, 0, false);
        tail.ack(3 * PUNCH_STEP_BYTES + 1, 0);
        assert_eq!(tail.punched, 0, "a crash of rank 0 may ask all of it back");
        tail.ack(3 * PUNCH_STEP_BYTES + 1, 3 * PUNCH_STEP_BYTES + 1);
        assert_eq!(tail.punched, 3 * PUNCH_STEP_BYTES);
        let meta = std::fs::metadata(&path).unwrap();
        assert_eq!(meta.len(), 4 * PUNCH_STEP_BYTES, "offsets stay");
        assert!(meta.blocks() * 512 <= 2 * PUNCH_STEP_BYTES, "{} blocks", meta.blocks());
    }

    /// Sends everything, with a leader that acknowledges at once.
    fn pump_all(tail: &mut OutputTail) -> Vec<(u64, usize)> {
        let mut all = Vec::new();
        loop {
            let (is_all, sent) = pump(tail);
            all.extend(&sent);
            if let Some((offset, n)) = sent.last() {
                tail.ack(offset + *n as u64, 0);
            }
            if is_all {
                return all;
            }
            assert!(!sent.is_empty(), "something, or all");
        }
    }

    fn file(dir: &tempfile::TempDir) -> File {
        let options = OpenOptions::new().append(true).create(true).clone();
        options.open(dir.path().join("x.out")).unwrap()
    }

    /// [output-bounded]
    #[test]
    fn what_is_past_the_limit_is_counted_and_takes_no_space() {
        let (disk, dir) = disk();
        let mut tail = OutputTail::fresh(&disk, "x.out".to_string(), LIMITS);
        let mut shell = file(&dir);
        let mut sent = 0;
        for _ in 0..15 {
            shell.write_all(&vec![b'x'; 2 * MIB as usize]).unwrap();
            sent += pump_all(&mut tail).iter().map(|(_, n)| *n as u64).sum::<u64>();
        }
        assert_eq!(sent, LIMITS.stream);
        assert_eq!(tail.truncated(), Some((LIMITS.stream, 22 * MIB)));
        assert_eq!(tail.overflow(), None);
        let allocated = disk.extent("x.out").unwrap().allocated;
        assert!(allocated <= 2 * LIMITS.stream + SPARE_BYTES, "{allocated}");
    }

    /// [output-bounded]
    #[test]
    fn a_length_of_a_terabyte_is_not_waited_for() {
        let (disk, dir) = disk();
        let mut tail = OutputTail::fresh(&disk, "x.out".to_string(), LIMITS);
        let mut shell = file(&dir);
        shell.write_all(b"before").unwrap();
        assert_eq!(pump(&mut tail), (true, vec![(0, 6)]));
        shell.set_len(4 * MIB).unwrap();
        shell.write_all(b"behind").unwrap();
        tail.ack(6, 0);
        let (all, sent) = pump(&mut tail);
        let (at, n) = *sent.last().unwrap();
        assert!(all && at + n as u64 == 4 * MIB + 6 && at > 3 * MIB, "{sent:?}");
        shell.set_len(1 << 40).unwrap();
        let (all, sent) = pump(&mut tail);
        let shipped: usize = sent.iter().map(|(_, n)| n).sum();
        assert!(all && shipped < 64 * 1024, "no more of a hole than the rest of a block: {sent:?}");
        assert_eq!(tail.truncated(), Some((LIMITS.stream, (1 << 40) - LIMITS.stream)));
        assert_eq!(tail.overflow(), None, "no space was taken");
    }

    /// [output-bounded]
    #[test]
    fn space_that_is_only_reserved_is_given_back_and_told() {
        let (disk, dir) = disk();
        for (flags, length) in
            [(FallocateFlags::empty(), 30 * MIB), (FallocateFlags::FALLOC_FL_KEEP_SIZE, 40 * MIB)]
        {
            let mut tail = OutputTail::fresh(&disk, "x.out".to_string(), LIMITS);
            let mut shell = file(&dir);
            shell.set_len(0).unwrap();
            shell.write_all(b"x").unwrap();
            match fallocate(&shell, flags, 0, length as i64) {
                Err(Errno::EOPNOTSUPP) => return println!("skipped: no fallocate here"),
                done => done.unwrap(),
            }
            let (all, _) = pump(&mut tail);
            assert!(all);
            let told = tail.overflow();
            assert!(told.is_some_and(|bytes| bytes >= length), "{flags:?}: {told:?}");
            let allocated = disk.extent("x.out").unwrap().allocated;
            assert!(allocated <= 2 * LIMITS.stream + SPARE_BYTES, "{flags:?}: {allocated}");
        }
    }

    /// [unwanted-discarded]
    #[test]
    fn what_nobody_wants_takes_no_space() {
        let (disk, dir) = disk();
        let mut tail = OutputTail::fresh(&disk, "x.out".to_string(), LIMITS);
        tail.ack(u64::MAX, 0);
        file(&dir).write_all(&vec![b'x'; 4 * MIB as usize]).unwrap();
        assert_eq!(pump(&mut tail), (true, vec![]));
        let allocated = disk.extent("x.out").unwrap().allocated;
        assert!(allocated <= SPARE_BYTES, "{allocated}");
    }
}
