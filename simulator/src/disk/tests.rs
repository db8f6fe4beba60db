use rand::SeedableRng;

use super::*;

fn disk() -> SimDisk {
    let disk = SimDisk::default();
    disk.create("a", IfExists::Fail, 0).unwrap();
    disk.append("a", b"before").unwrap();
    disk
}

fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|e| e.raw_os_error())
}

#[test]
fn it_works_as_the_hosts_disk_does() {
    let disk = SimDisk::default();
    assert_eq!(errno(disk.append("x", b"one")), Some(libc::ENOENT), "append makes no file");
    disk.create("x", IfExists::Keep, 0).unwrap();
    disk.append("x", b"one").unwrap();
    disk.append("x", b"two").unwrap();
    assert_eq!(errno(disk.create("x", IfExists::Fail, 0)), Some(libc::EEXIST));
    disk.create("x", IfExists::Keep, 0).unwrap();
    assert_eq!(disk.read("x").unwrap(), b"onetwo");
    disk.punch("x", 1, 2).unwrap();
    disk.set_length("x", 4).unwrap();
    let mut buffer = [9; 8];
    assert_eq!(disk.read_at("x", 2, &mut buffer).unwrap(), Some((2, 2)));
    assert_eq!(buffer, [0, b't', 9, 9, 9, 9, 9, 9]);
    assert_eq!(disk.read_at("x", 99, &mut buffer).unwrap(), None);
    disk.rename("x", "y").unwrap();
    assert_eq!((disk.names().unwrap(), disk.extent("y").unwrap().size), (vec!["y".to_string()], 4));
    disk.create("y", IfExists::Truncate, 0).unwrap();
    assert_eq!(disk.extent("y").unwrap().size, 0);
    disk.remove("y").unwrap();
    assert_eq!(errno(disk.remove("y")), Some(libc::ENOENT));
}

#[test]
fn a_full_disk_takes_what_fits() {
    let disk = disk();
    disk.set_room(Some(3));
    assert_eq!(errno(disk.append("a", b"1234")), Some(libc::ENOSPC));
    assert_eq!(errno(disk.append("a", b"5")), Some(libc::ENOSPC));
    assert_eq!(disk.write_output(&disk.path("a"), b"6"), 0);
    assert_eq!(disk.contents("a").unwrap(), b"before123");
    assert_eq!(errno(disk.create("b", IfExists::Fail, 0)), Some(libc::ENOSPC));
    disk.set_full(false);
    disk.append("a", b"4").unwrap();
    assert_eq!(disk.contents("a").unwrap(), b"before1234");
    assert_eq!(disk.counts().full, 4);
}

#[test]
fn a_full_disk_takes_what_there_is_reserved_space_for() {
    let disk = disk();
    disk.set_room(Some(7));
    assert_eq!(errno(disk.create("b", IfExists::Fail, 8)), Some(libc::ENOSPC));
    disk.create("c", IfExists::Fail, 4).unwrap();
    disk.set_full(true);
    disk.append("c", b"12").unwrap();
    assert_eq!(errno(disk.append("c", b"345")), Some(libc::ENOSPC));
    assert_eq!(disk.contents("c").unwrap(), b"1234");
    let disk = SimDisk::without_reserves();
    disk.create("c", IfExists::Fail, 4).unwrap();
    disk.set_full(true);
    assert_eq!(errno(disk.append("c", b"1")), Some(libc::ENOSPC));
}

#[test]
fn a_module_that_dies_in_a_write_stays_dead_for_its_life() {
    let disk = disk();
    disk.crash_in_write(0, 2);
    disk.read("a").unwrap();
    assert_eq!(errno(disk.append("a", b"1234")), Some(libc::EIO));
    assert!(disk.is_dead());
    assert_eq!(errno(disk.read("a")), Some(libc::EIO));
    assert_eq!(errno(disk.remove("a")), Some(libc::EIO));
    assert_eq!(disk.write_output(&disk.path("a"), b"!"), 1);
    disk.begin_life();
    assert_eq!(disk.read("a").unwrap(), b"before12!", "shells go on");
    for (bytes, files) in [(0, vec!["a"]), (1, vec!["b"])] {
        disk.crash_in_write(0, bytes);
        assert_eq!(errno(disk.rename("a", "b")), Some(libc::EIO));
        disk.begin_life();
        assert_eq!(disk.files(), files);
    }
    assert_eq!(disk.counts().crashes, 3);
    assert_eq!(disk.write_output(&disk.path("a"), b"?"), 0);
    assert_eq!(disk.files(), ["b"], "a file that was removed stays so");
}

#[test]
fn a_crash_of_the_node_takes_only_what_was_written_since_its_boot() {
    let mut fates = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let disk = disk();
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        disk.lock().files.get_mut("a").unwrap().unsynced_from = None;
        disk.lock().files.get_mut("a").unwrap().new = false;
        disk.append("a", b"after").unwrap();
        disk.create("b", IfExists::Fail, 0).unwrap();
        disk.append("b", b"new").unwrap();
        let damaged = disk.lose_unsynced(&mut rng);
        let a = disk.contents("a").unwrap();
        assert!(a.starts_with(b"before"), "{a:?}");
        fates.insert(disk.contents("b"));
        assert_eq!(disk.counts().damaged, damaged.len() as u64);
        assert_eq!(disk.lose_unsynced(&mut rng), Vec::<String>::new(), "the rest has lasted");
    }
    // The file is gone, has one of four lengths (the longest is the whole file), or has zeros in
    // place of one to three bytes.
    assert_eq!(fates.len(), 1 + 4 + 3, "{fates:?}");
}

#[test]
fn the_same_seed_takes_the_same() {
    let lose = |seed| {
        let disk = disk();
        disk.create("b", IfExists::Fail, 0).unwrap();
        disk.append("b", &[7; 1000]).unwrap();
        disk.lose_unsynced(&mut ChaCha8Rng::seed_from_u64(seed));
        (disk.contents("a"), disk.contents("b"))
    };
    assert!((0..50).all(|seed| lose(seed) == lose(seed)));
}
