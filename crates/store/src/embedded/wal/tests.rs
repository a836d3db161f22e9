use super::{
    group::{HEADER_BYTES, RECORD_HEADER_BYTES},
    *,
};

const SEED: u32 = 0x5eed;

fn open(dir: &Path) -> Result<(Wal, Vec<Vec<u8>>)> {
    let mut seen = Vec::new();
    let wal = Wal::open(dir, 1 << 20, SEED, 1, |lsn, bytes| {
        assert_eq!(lsn, seen.len() as u64 + 1);
        seen.push(bytes.to_vec());
        Ok(())
    })?;
    Ok((wal, seen))
}

fn append(wal: &mut Wal, records: &[&[u8]]) {
    let mut group = Group::default();
    for record in records {
        group.push(|out| out.extend_from_slice(record));
    }
    wal.append(&mut group).unwrap();
}

#[test]
fn a_log_cut_at_any_byte_opens_to_whole_groups() {
    let dir = tempfile::tempdir().unwrap();
    let (mut wal, _) = open(dir.path()).unwrap();
    append(&mut wal, &[b"one", b"two"]);
    let first = wal.end;
    append(&mut wal, &[b"three", b"four", b"five"]);
    let bytes = fs::read(&wal.path).unwrap();
    let (path, end) = (wal.path.clone(), wal.end as usize);
    drop(wal);
    for cut in 0..=end + 100 {
        fs::write(&path, &bytes[..cut]).unwrap();
        let (wal, seen) = open(dir.path()).unwrap();
        assert!(fs::metadata(&path).unwrap().len() <= end as u64, "no room is left at {cut}");
        let expected = if cut >= end {
            5
        } else if cut as u64 >= first {
            2
        } else {
            0
        };
        assert_eq!(seen.len(), expected, "cut at {cut}");
        assert_eq!(wal.next_lsn(), expected as u64 + 1);
    }
}

#[test]
fn a_log_cut_at_any_byte_behind_a_segment_boundary_opens_to_whole_groups_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (mut wal, _) = open(dir.path()).unwrap();
    append(&mut wal, &[b"one", b"two"]);
    append(&mut wal, &[b"three"]);
    wal.rotate().unwrap();
    append(&mut wal, &[b"four", b"five"]);
    let first = wal.end;
    append(&mut wal, &[b"six"]);
    let (path, end) = (wal.path.clone(), wal.end as usize);
    let bytes = fs::read(&path).unwrap();
    drop(wal);
    for cut in 0..=end + 100 {
        fs::write(&path, &bytes[..cut]).unwrap();
        let (mut wal, seen) = open(dir.path()).unwrap();
        let expected = match cut {
            whole if whole >= end => 6,
            behind if behind as u64 >= first => 5,
            _ => 3,
        };
        assert_eq!(seen.len(), expected, "cut at {cut}");
        // The next group is appended and found.
        append(&mut wal, &[b"next"]);
        drop(wal);
        assert_eq!(open(dir.path()).unwrap().1.len(), expected + 1, "cut at {cut}, written on");
    }
    // The segment was never created.
    fs::remove_file(&path).unwrap();
    assert_eq!(open(dir.path()).unwrap().1.len(), 3);
}

#[test]
fn a_segment_that_ends_too_early_before_another_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (mut wal, _) = open(dir.path()).unwrap();
    append(&mut wal, &[b"one"]);
    let path = wal.path.clone();
    let first = wal.end as usize;
    append(&mut wal, &[b"two"]);
    wal.rotate().unwrap();
    let bytes = fs::read(&path).unwrap();
    append(&mut wal, &[b"three"]);
    drop(wal);
    for cut in 0..bytes.len() {
        fs::write(&path, &bytes[..cut]).unwrap();
        let refused = open(dir.path()).err();
        assert!(matches!(refused, Some(StoreError::Corrupt(_))), "cut at {cut} of {first}");
    }
    fs::write(&path, &bytes).unwrap();
    assert_eq!(open(dir.path()).unwrap().1.len(), 3);
}

#[test]
fn dropped_segments_that_come_back_after_a_power_loss_do_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let (mut wal, _) = open(dir.path()).unwrap();
    let first = wal.path.clone();
    for n in 1..=5u8 {
        append(&mut wal, &[&[n]]);
        wal.rotate().unwrap();
    }
    let back = fs::read(&first).unwrap();
    remove_before(dir.path(), 4).unwrap();
    drop(wal);
    // Removals become durable in any order: the first segment is back, the ones after it are not.
    fs::write(&first, back).unwrap();
    let open_at = |mark: u64| {
        let mut seen = Vec::new();
        Wal::open(dir.path(), 1 << 20, SEED, mark, |lsn, _| {
            seen.push(lsn);
            Ok(())
        })
        .map(|wal| (seen, wal.next_lsn()))
    };
    assert_eq!(open_at(4).unwrap(), (vec![1, 4, 5], 6));
    // If the engine does not have the records in between, they are lost.
    assert!(matches!(open_at(3), Err(StoreError::Corrupt(_))));
}

#[test]
fn a_body_that_looks_like_a_group_does_not_stop_the_log_from_opening() {
    let dir = tempfile::tempdir().unwrap();
    let (mut wal, _) = open(dir.path()).unwrap();
    append(&mut wal, &[b"first"]);
    // What a user could write who knows the format and not the seed.
    let mut forged = Group::default();
    forged.push(|out| out.extend_from_slice(b"x"));
    forged.seal(0, 1 << 40, 1 << 40);
    append(&mut wal, &[&forged.bytes, b"the rest"]);
    let bytes = fs::read(&wal.path).unwrap();
    let (path, end) = (wal.path.clone(), wal.end as usize);
    drop(wal);
    fs::write(&path, &bytes[..end - 3]).unwrap();
    assert_eq!(open(dir.path()).unwrap().1, [b"first"]);
}

#[test]
fn damage_before_an_acknowledged_group_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (mut wal, _) = open(dir.path()).unwrap();
    append(&mut wal, &[b"first"]);
    append(&mut wal, &[b"second"]);
    let mut bytes = fs::read(&wal.path).unwrap();
    bytes[HEADER_BYTES + RECORD_HEADER_BYTES] ^= 1;
    fs::write(&wal.path, &bytes).unwrap();
    let error = open(dir.path()).err().expect("must not open");
    assert!(matches!(error, StoreError::Corrupt(_)), "{error}");
    assert_eq!(fs::read(&wal.path).unwrap(), bytes, "nothing was touched");
}

#[test]
fn damage_in_the_last_group_is_a_torn_tail() {
    let dir = tempfile::tempdir().unwrap();
    let (mut wal, _) = open(dir.path()).unwrap();
    append(&mut wal, &[b"first"]);
    let end = wal.end as usize;
    append(&mut wal, &[b"second"]);
    let mut bytes = fs::read(&wal.path).unwrap();
    bytes[end + HEADER_BYTES + RECORD_HEADER_BYTES] ^= 1;
    fs::write(&wal.path, &bytes).unwrap();
    let (mut wal, seen) = open(dir.path()).unwrap();
    assert_eq!(seen, [b"first"]);
    append(&mut wal, &[b"third"]);
    drop(wal);
    assert_eq!(open(dir.path()).unwrap().1, [&b"first"[..], b"third"]);
}

#[test]
fn groups_fill_the_room_and_a_segment_that_is_left_has_none() {
    let dir = tempfile::tempdir().unwrap();
    let (mut wal, _) = open(dir.path()).unwrap();
    let length = |wal: &Wal| fs::metadata(&wal.path).unwrap().len();
    append(&mut wal, &[b"first"]);
    let first = length(&wal);
    assert_eq!(first, wal.end + ROOM_BYTES);
    append(&mut wal, &[b"second"]);
    assert_eq!(length(&wal), first, "the file is as long as before");
    append(&mut wal, &[&[7; ROOM_BYTES as usize]]);
    assert!(length(&wal) > first && length(&wal) > wal.end);
    assert_eq!(length(&wal), wal.length);
    let (left, end) = (wal.path.clone(), wal.end);
    wal.rotate().unwrap();
    assert_eq!(fs::metadata(left).unwrap().len(), end);
    append(&mut wal, &[b"last"]);
    drop(wal);
    assert_eq!(open(dir.path()).unwrap().1.len(), 4);
}

#[test]
fn room_that_is_left_in_an_old_segment_does_no_harm_and_hides_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (mut wal, _) = open(dir.path()).unwrap();
    append(&mut wal, &[b"first"]);
    append(&mut wal, &[b"second"]);
    let (old, bytes) = (wal.path.clone(), fs::read(&wal.path).unwrap());
    let (first, end) = (wal.end as usize / 2, wal.end as usize);
    wal.rotate().unwrap();
    append(&mut wal, &[b"third"]);
    drop(wal);
    assert!(bytes.len() > end, "with its room");
    fs::write(&old, &bytes).unwrap();
    assert_eq!(open(dir.path()).unwrap().1.len(), 3);
    // A group that is zeroed shows as missing.
    let mut lost = bytes.clone();
    lost[first..end].fill(0);
    fs::write(&old, &lost).unwrap();
    assert!(matches!(open(dir.path()), Err(StoreError::Corrupt(_))));
}

#[test]
fn a_group_behind_zeros_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let (mut wal, _) = open(dir.path()).unwrap();
    append(&mut wal, &[b"first"]);
    let from = wal.end as usize;
    append(&mut wal, &[b"second"]);
    let to = wal.end as usize;
    append(&mut wal, &[b"third"]);
    let mut bytes = fs::read(&wal.path).unwrap();
    bytes[from..to].fill(0);
    fs::write(&wal.path, &bytes).unwrap();
    drop(wal);
    assert!(matches!(open(dir.path()), Err(StoreError::Corrupt(_))));
}

#[test]
fn old_segments_go_when_their_records_do() {
    let dir = tempfile::tempdir().unwrap();
    let (mut wal, _) = open(dir.path()).unwrap();
    for n in 0..4u8 {
        append(&mut wal, &[&[n]]);
        wal.rotate().unwrap();
    }
    assert_eq!(list_segments(dir.path()).unwrap().len(), 5);
    let all = wal.total_bytes();
    remove_before(dir.path(), 3).unwrap();
    wal.forget_before(3);
    assert_eq!(wal.total_bytes(), all / 2);
    let left: Vec<u64> = list_segments(dir.path()).unwrap().into_iter().map(|(start, _)| start).collect();
    assert_eq!(left, [3, 4, 5]);
    drop(wal);
    let mut seen = Vec::new();
    let wal = Wal::open(dir.path(), 1 << 20, SEED, 1, |lsn, _| {
        seen.push(lsn);
        Ok(())
    })
    .unwrap();
    assert_eq!((seen, wal.next_lsn()), (vec![3, 4], 5));
}
