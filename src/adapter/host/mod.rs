//! The node's own file system.

mod linger;

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::unistd::{Whence, geteuid, lseek};

use crate::port::disk::{Disk, Extent, IfExists};
use crate::supervisor::with_descriptors;
pub use flux_sys::keep_mapped;
pub use linger::{has_user_manager, lingers};

/// A directory, private to the instance owner.
///
/// Each call opens its file. Otherwise a rank with a thousand shells would hold three thousand
/// descriptors, most of them idle. It works also when the process has no descriptor left.
#[derive(Clone, Debug)]
pub struct HostDisk {
    directory: PathBuf,
}

impl HostDisk {
    /// Open the directory, and make it if it is missing. An existing one is refused if another user
    /// could have put files into it.
    ///
    /// # Errors
    ///
    /// If it cannot be made, if it is a symbolic link or not a directory, if it belongs to another
    /// user, or if others may write to it.
    pub fn open(directory: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let metadata = std::fs::symlink_metadata(directory)?;
        let owner = geteuid().as_raw();
        let mode = metadata.mode() & 0o7777;
        let why = if !metadata.is_dir() {
            "it is a symbolic link".to_string()
        } else if metadata.uid() != owner {
            format!("it belongs to user {}, expected {owner}", metadata.uid())
        } else if mode & 0o022 != 0 {
            format!("others may write to it (mode {mode:04o}, expected 0700)")
        } else {
            if mode & 0o077 != 0 {
                std::fs::set_permissions(directory, Permissions::from_mode(0o700))?;
            }
            return Ok(Self { directory: directory.to_path_buf() });
        };
        Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
    }

    /// Make the directory again, because somebody has removed it.
    ///
    /// Whoever owns the directory above could put another one into its place later, so that must be
    /// root or the instance owner.
    fn make_again(&self) -> io::Result<()> {
        let is_missing = |path: &&Path| std::fs::symlink_metadata(path).is_err();
        let missing: Vec<&Path> = self.directory.ancestors().take_while(is_missing).collect();
        let above = self.directory.ancestors().nth(missing.len()).unwrap_or(Path::new("/"));
        let uid = std::fs::symlink_metadata(above)?.uid();
        if uid != 0 && uid != geteuid().as_raw() {
            let why = format!("{} belongs to user {uid}", above.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        for path in missing.iter().rev() {
            match DirBuilder::new().mode(0o700).create(path) {
                // By another broker of this owner that shares it, or by somebody else.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => drop(Self::open(path)?),
                made => made?,
            }
        }
        tracing::warn!(directory = %self.directory.display(),
            "the state directory was removed: it is made again");
        Ok(())
    }

    fn write(&self, name: &str) -> io::Result<File> {
        OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW).open(self.path(name))
    }

    fn read_only(&self, name: &str) -> io::Result<File> {
        OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(self.path(name))
    }

    fn make(&self, name: &str, exists: IfExists, room: u64) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        match exists {
            IfExists::Fail => options.create_new(true),
            IfExists::Keep => options.create(true),
            IfExists::Truncate => options.create(true).truncate(true),
        };
        let path = self.path(name);
        let file = match options.open(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.make_again()?;
                options.open(&path)?
            }
            opened => opened?,
        };
        if room == 0 {
            return Ok(());
        }
        change_space(&file, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, room)
    }

    fn read_data(
        &self,
        name: &str,
        offset: u64,
        buffer: &mut [u8],
    ) -> io::Result<Option<(u64, usize)>> {
        let file = self.read_only(name)?;
        let seek = |to: u64, whence| lseek(&file, i64::try_from(to).unwrap_or(i64::MAX), whence);
        let from = match seek(offset, Whence::SeekData) {
            Ok(from) => u64::try_from(from).unwrap_or(offset),
            // `offset` is after the last byte, or in the hole at the end.
            Err(Errno::ENXIO) => return Ok(None),
            // Not every file system can find holes.
            Err(Errno::EINVAL) => offset,
            Err(e) => return Err(e.into()),
        };
        let hole = seek(from, Whence::SeekHole).ok().and_then(|hole| u64::try_from(hole).ok());
        let data =
            hole.map_or(usize::MAX, |hole| usize::try_from(hole - from).unwrap_or(usize::MAX));
        let length = buffer.len().min(data);
        let n = file.read_at(&mut buffer[..length], from)?;
        Ok((n > 0).then_some((from, n)))
    }
}

impl Disk for HostDisk {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        with_descriptors(|| {
            let mut names = Vec::new();
            for entry in std::fs::read_dir(&self.directory)? {
                names.extend(entry?.file_name().into_string());
            }
            Ok(names)
        })
    }

    fn create(&self, name: &str, exists: IfExists, room: u64) -> io::Result<()> {
        with_descriptors(|| self.make(name, exists, room))
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        with_descriptors(|| {
            let mut bytes = Vec::new();
            self.read_only(name)?.read_to_end(&mut bytes)?;
            Ok(bytes)
        })
    }

    fn read_at(
        &self,
        name: &str,
        offset: u64,
        buffer: &mut [u8],
    ) -> io::Result<Option<(u64, usize)>> {
        with_descriptors(|| self.read_data(name, offset, buffer))
    }

    fn extent(&self, name: &str) -> io::Result<Extent> {
        let metadata = std::fs::symlink_metadata(self.path(name))?;
        Ok(Extent { size: metadata.len(), allocated: metadata.blocks().saturating_mul(512) })
    }

    fn has_writer(&self, name: &str) -> io::Result<bool> {
        with_descriptors(|| {
            let file = self.read_only(name)?;
            Ok(flux_sys::has_writer(file.as_fd()).unwrap_or_else(|error| {
                tracing::debug!(name, %error, "cannot see whether it is open for writing");
                false
            }))
        })
    }

    fn append(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        with_descriptors(|| {
            let mut options = OpenOptions::new();
            options.append(true).custom_flags(libc::O_NOFOLLOW);
            options.open(self.path(name))?.write_all(bytes)
        })
    }

    fn set_length(&self, name: &str, length: u64) -> io::Result<()> {
        with_descriptors(|| self.write(name)?.set_len(length))
    }

    fn punch(&self, name: &str, offset: u64, length: u64) -> io::Result<()> {
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        with_descriptors(|| change_space(&self.write(name)?, flags, offset, length))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path(name))
    }
}

/// Gives space to these bytes, or takes it. Does nothing if the file system cannot do that.
fn change_space(file: &File, flags: FallocateFlags, offset: u64, length: u64) -> io::Result<()> {
    let range = |n: u64| i64::try_from(n).map_err(|_| Errno::EFBIG);
    match fallocate(file, flags, range(offset)?, range(length)?) {
        Ok(()) | Err(Errno::EOPNOTSUPP) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> (HostDisk, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        (HostDisk::open(&dir.path().join("a/b")).unwrap(), dir)
    }

    /// [facts-room]
    #[test]
    fn space_is_reserved() {
        let (disk, _dir) = disk();
        disk.create("x", IfExists::Fail, 100_000).unwrap();
        let extent = disk.extent("x").unwrap();
        assert_eq!(extent.size, 0);
        if extent.allocated == 0 {
            return println!("skipped: no fallocate here");
        }
        assert!(extent.allocated >= 100_000, "{extent:?}");
        disk.append("x", b"1").unwrap();
        let after = disk.extent("x").unwrap();
        assert_eq!((after.size, after.allocated), (1, extent.allocated));
    }

    #[test]
    fn only_the_owner_can_read() {
        let (disk, _dir) = disk();
        disk.create("x", IfExists::Fail, 0).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&disk.directory), 0o700);
        assert_eq!(mode(&disk.path("x")), 0o600);
    }

    /// [swept-made-again] [state-directory-private]
    #[test]
    fn a_directory_that_was_removed_is_made_again() {
        let (disk, dir) = disk();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        for removed in ["a/b", "a"] {
            std::fs::remove_dir_all(dir.path().join(removed)).unwrap();
            disk.create("x", IfExists::Fail, 0).unwrap();
            assert_eq!((mode(&dir.path().join("a")), mode(&disk.directory)), (0o700, 0o700));
            assert_eq!(disk.names().unwrap(), ["x"]);
        }
        if geteuid().is_root() {
            std::fs::remove_dir_all(&disk.directory).unwrap();
            std::os::unix::fs::chown(dir.path().join("a"), Some(12345), None).unwrap();
            let refused = disk.create("x", IfExists::Fail, 0).unwrap_err();
            assert!(refused.to_string().ends_with("belongs to user 12345"), "{refused}");
        }
    }

    #[test]
    fn what_is_there_stays_or_not_as_asked() {
        let (disk, _dir) = disk();
        let missing = disk.append("x", b"one").unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound, "append makes no file");
        disk.create("x", IfExists::Keep, 0).unwrap();
        disk.append("x", b"one").unwrap();
        disk.append("x", b"two").unwrap();
        let exists = disk.create("x", IfExists::Fail, 0).unwrap_err();
        assert_eq!(exists.kind(), io::ErrorKind::AlreadyExists);
        disk.create("x", IfExists::Keep, 0).unwrap();
        assert_eq!(disk.read("x").unwrap(), b"onetwo");
        disk.set_length("x", 4).unwrap();
        let mut buffer = [0; 8];
        assert_eq!(disk.read_at("x", 2, &mut buffer).unwrap(), Some((2, 2)));
        assert_eq!(&buffer[..2], b"et");
        disk.rename("x", "y").unwrap();
        assert_eq!(
            (disk.names().unwrap(), disk.extent("y").unwrap().size),
            (vec!["y".to_string()], 4)
        );
        disk.create("y", IfExists::Truncate, 0).unwrap();
        assert_eq!(disk.extent("y").unwrap().size, 0);
        disk.remove("y").unwrap();
        assert_eq!(disk.remove("y").unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn holes_take_no_space_and_move_nothing() {
        const MIB: u64 = 1024 * 1024;
        let (disk, _dir) = disk();
        disk.create("x", IfExists::Fail, 0).unwrap();
        disk.append("x", &vec![b'x'; 4 * MIB as usize]).unwrap();
        disk.punch("x", 0, 3 * MIB).unwrap();
        let Extent { size, allocated } = disk.extent("x").unwrap();
        assert_eq!(size, 4 * MIB, "offsets stay");
        assert!(allocated <= 2 * MIB, "{allocated}");
        let mut buffer = [0; 8];
        assert_eq!(disk.read_at("x", 0, &mut buffer).unwrap(), Some((3 * MIB, 8)));
        disk.set_length("x", 1 << 40).unwrap();
        assert_eq!(disk.read_at("x", 4 * MIB, &mut buffer).unwrap(), None);
        assert_eq!(disk.read_at("x", 4 * MIB - 3, &mut buffer).unwrap(), Some((4 * MIB - 3, 3)));
    }

    #[test]
    fn it_is_seen_who_writes() {
        let (disk, _dir) = disk();
        disk.create("x", IfExists::Fail, 0).unwrap();
        assert!(!disk.has_writer("x").unwrap());
        let writer = OpenOptions::new().append(true).open(disk.path("x")).unwrap();
        assert!(disk.has_writer("x").unwrap());
        drop(writer);
        let reader = File::open(disk.path("x")).unwrap();
        assert!(!disk.has_writer("x").unwrap());
        drop(reader);
    }

    /// [state-directory-private]
    #[test]
    fn a_directory_that_others_can_change_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |path: &Path| HostDisk::open(path).unwrap_err().to_string();
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        let plain = dir.path().join("plain");
        std::fs::create_dir(&plain).unwrap();
        for bad in [0o777, 0o720, 0o702, 0o1777] {
            mode(&plain, bad);
            assert!(refused(&plain).contains("others may write"), "{bad:o}");
        }
        mode(&plain, 0o755);
        HostDisk::open(&plain).unwrap();
        let seen = std::fs::metadata(&plain).unwrap().permissions().mode() & 0o777;
        assert_eq!(seen, 0o700, "closed to readers");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&plain, &link).unwrap();
        assert!(refused(&link).contains("symbolic link"));
        if geteuid().is_root() {
            let theirs = dir.path().join("theirs");
            std::fs::create_dir(&theirs).unwrap();
            std::os::unix::fs::chown(&theirs, Some(12345), None).unwrap();
            assert!(refused(&theirs).contains("belongs to user 12345"));
        }
    }

    /// [state-directory-private]
    #[test]
    fn no_link_is_followed() {
        let (disk, dir) = disk();
        let other = dir.path().join("other");
        std::fs::write(&other, "secret").unwrap();
        std::os::unix::fs::symlink(&other, disk.path("x")).unwrap();
        let mut buffer = [0; 8];
        assert!(disk.read("x").is_err() && disk.append("x", b"more").is_err());
        assert!(disk.read_at("x", 0, &mut buffer).is_err() && disk.set_length("x", 0).is_err());
        assert!(disk.create("x", IfExists::Truncate, 0).is_err());
        assert_eq!(std::fs::read(&other).unwrap(), b"secret");
    }
}
