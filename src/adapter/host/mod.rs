//! The node's own file system.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};

use crate::port::disk::{Disk, IfExists};

/// A directory, private to the instance owner.
///
/// Files are opened for each call: a rank with a thousand shells would otherwise hold three
/// thousand descriptors, most of them idle.
#[derive(Clone, Debug)]
pub struct HostDisk {
    directory: PathBuf,
}

impl HostDisk {
    /// Make the directory where it is missing.
    ///
    /// # Errors
    ///
    /// If there is none after that.
    pub fn open(directory: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        Ok(Self { directory: directory.to_path_buf() })
    }

    fn write(&self, name: &str) -> io::Result<File> {
        OpenOptions::new().write(true).open(self.path(name))
    }
}

impl Disk for HostDisk {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.directory)? {
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn create(&self, name: &str, exists: IfExists) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).mode(0o600);
        match exists {
            IfExists::Fail => options.create_new(true),
            IfExists::Keep => options.create(true),
            IfExists::Truncate => options.create(true).truncate(true),
        };
        options.open(self.path(name)).map(drop)
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        std::fs::read(self.path(name))
    }

    fn read_at(&self, name: &str, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        File::open(self.path(name))?.read_at(buffer, offset)
    }

    fn size(&self, name: &str) -> io::Result<u64> {
        Ok(std::fs::metadata(self.path(name))?.len())
    }

    fn append(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        OpenOptions::new().append(true).open(self.path(name))?.write_all(bytes)
    }

    fn set_length(&self, name: &str, length: u64) -> io::Result<()> {
        self.write(name)?.set_len(length)
    }

    fn punch(&self, name: &str, offset: u64, length: u64) -> io::Result<()> {
        let range = |n: u64| i64::try_from(n).map_err(|_| Errno::EFBIG);
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        match fallocate(&self.write(name)?, flags, range(offset)?, range(length)?) {
            // Not every file system can; then the file stays as large as it is.
            Ok(()) | Err(Errno::EOPNOTSUPP) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path(name))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    fn disk() -> (HostDisk, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        (HostDisk::open(&dir.path().join("a/b")).unwrap(), dir)
    }

    #[test]
    fn only_the_owner_can_read() {
        let (disk, _dir) = disk();
        disk.create("x", IfExists::Fail).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&disk.directory), 0o700);
        assert_eq!(mode(&disk.path("x")), 0o600);
    }

    #[test]
    fn what_is_there_stays_or_not_as_asked() {
        let (disk, _dir) = disk();
        let missing = disk.append("x", b"one").unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound, "append makes no file");
        disk.create("x", IfExists::Keep).unwrap();
        disk.append("x", b"one").unwrap();
        disk.append("x", b"two").unwrap();
        let exists = disk.create("x", IfExists::Fail).unwrap_err();
        assert_eq!(exists.kind(), io::ErrorKind::AlreadyExists);
        disk.create("x", IfExists::Keep).unwrap();
        assert_eq!(disk.read("x").unwrap(), b"onetwo");
        disk.set_length("x", 4).unwrap();
        let mut buffer = [0; 8];
        assert_eq!(disk.read_at("x", 2, &mut buffer).unwrap(), 2);
        assert_eq!(&buffer[..2], b"et");
        disk.rename("x", "y").unwrap();
        assert_eq!((disk.names().unwrap(), disk.size("y").unwrap()), (vec!["y".to_string()], 4));
        disk.create("y", IfExists::Truncate).unwrap();
        assert_eq!(disk.size("y").unwrap(), 0);
        disk.remove("y").unwrap();
        assert_eq!(disk.remove("y").unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn holes_take_no_space_and_move_nothing() {
        const MIB: u64 = 1024 * 1024;
        let (disk, _dir) = disk();
        disk.create("x", IfExists::Fail).unwrap();
        disk.append("x", &vec![b'x'; 4 * MIB as usize]).unwrap();
        disk.punch("x", 0, 3 * MIB).unwrap();
        let meta = std::fs::metadata(disk.path("x")).unwrap();
        assert_eq!(meta.len(), 4 * MIB, "offsets stay");
        assert!(meta.blocks() * 512 <= 2 * MIB, "{} blocks", meta.blocks());
    }
}
