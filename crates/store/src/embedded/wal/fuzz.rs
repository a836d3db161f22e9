//! Fuzz targets: arbitrary bytes as a segment of the log, and a whole log with arbitrary damage.

use bluetick_fuzz::{fuzz, golden};

use super::{
    group::{HEADER_BYTES, MAGIC, RECORD_HEADER_BYTES, record_crc},
    *,
};

const SEED: u32 = 0x5eed;

/// Records with their lsns.
type Records = Vec<(u64, Vec<u8>)>;

/// What a start reads from a segment: its records, and where the last whole group ends.
fn replayed(bytes: &[u8], last_segment: bool) -> Result<(Records, u64)> {
    let mut records = Records::new();
    let mut next = ExpectedGroup { group: None, lsn: 1 };
    let end = scan(Path::new("segment"), 1, bytes, SEED, last_segment, &mut next, &mut |lsn, record| {
        records.push((lsn, record.to_vec()));
        Ok(())
    })?;
    if let Some((last, _)) = records.last() {
        assert_eq!(next.lsn, last + 1);
    }
    Ok((records, end))
}

/// Corrects magic numbers and checksums wherever a group or record could begin, so that mutations
/// reach the code behind these checks.
fn seal_all(bytes: &mut [u8]) {
    let mut at = 0;
    while let Some(group) = bytes.get_mut(at..).filter(|rest| rest.len() >= HEADER_BYTES) {
        let length = u32::from_le_bytes([group[24], group[25], group[26], group[27]]) as usize;
        let end = HEADER_BYTES.saturating_add(length).min(group.len());
        let mut body = &mut group[HEADER_BYTES..end];
        while body.len() >= RECORD_HEADER_BYTES {
            let claimed = u32::from_le_bytes([body[0], body[1], body[2], body[3]]);
            let payload = RECORD_HEADER_BYTES.saturating_add(claimed as usize).min(body.len());
            let crc = record_crc(claimed, &body[RECORD_HEADER_BYTES..payload]);
            body[4..8].copy_from_slice(&crc.to_le_bytes());
            body = &mut body[payload..];
        }
        group[..4].copy_from_slice(&MAGIC.to_le_bytes());
        let crc = crc32c::crc32c_append(SEED, &group[8..HEADER_BYTES]);
        group[4..8].copy_from_slice(&crc.to_le_bytes());
        at += end;
    }
}

/// The first byte says whether the rest is used as it is or sealed first.
#[test]
fn segment() {
    fuzz("segment", 30_000, |input| {
        let Some((&sealed, bytes)) = input.split_first() else {
            return false;
        };
        let mut bytes = bytes.to_vec();
        if sealed == b's' {
            seal_all(&mut bytes);
        }
        let Ok((records, end)) = replayed(&bytes, true) else {
            return false;
        };
        for pair in records.windows(2) {
            assert_eq!(pair[1].0, pair[0].0 + 1, "no position twice, and none left out");
        }
        let whole = &bytes[..end as usize];
        assert_eq!(
            replayed(whole, true).unwrap(),
            (records.clone(), end),
            "what is left after the cut is whole"
        );
        assert_eq!(replayed(whole, false).unwrap(), (records, end), "also as a segment that others follow");
        end as usize == bytes.len()
    });
}

/// The record with an lsn in the log that is damaged below.
fn record_at(lsn: u64) -> Vec<u8> {
    let mut record = format!("record {lsn} ").into_bytes();
    record.extend((0..lsn * 3).map(|n| n as u8));
    record
}

/// A whole log of a few groups, and where each group begins.
fn whole_log() -> (Vec<u8>, Vec<usize>) {
    let (mut bytes, mut starts, mut lsn) = (Vec::new(), Vec::new(), 1);
    for (n, records) in [1, 3, 2, 1, 4].into_iter().enumerate() {
        let mut group = Group::default();
        for lsn in lsn..lsn + records {
            group.push(|out| out.extend_from_slice(&record_at(lsn)));
        }
        group.seal(SEED, n as u64 + 1, lsn);
        starts.push(bytes.len());
        bytes.extend_from_slice(&group.bytes);
        lsn += records;
    }
    (bytes, starts)
}

/// The input describes the damage: four bytes for each step, which are kind, place (two bytes) and
/// amount.
#[test]
fn damaged_log() {
    fuzz("damaged_log", 30_000, |input| {
        let (whole, starts) = whole_log();
        let mut bytes = whole.clone();
        let mut only_overwritten = true;
        for blow in input.chunks_exact(4) {
            let at = usize::from(u16::from_le_bytes([blow[1], blow[2]])) % (bytes.len() + 1);
            let much = usize::from(blow[3]);
            let range = at..(at + much).min(bytes.len());
            match blow[0] {
                b'x' => bytes.iter_mut().skip(at).take(1).for_each(|b| *b ^= blow[3]),
                b'z' => bytes[range].fill(0),
                b'c' => bytes.truncate(at),
                b'r' => drop(bytes.drain(range)),
                b'd' => {
                    let again = bytes[range].to_vec();
                    bytes.extend_from_slice(&again);
                }
                b'a' => bytes.extend(std::iter::repeat_n(blow[2], much)),
                // Appends a group again.
                b'g' => {
                    let n = much % starts.len();
                    let end = starts.get(n + 1).copied().unwrap_or(whole.len());
                    bytes.extend_from_slice(&whole[starts[n]..end]);
                }
                _ => continue,
            }
            only_overwritten &= matches!(blow[0], b'x' | b'z');
            bytes.truncate(64 * 1024);
        }

        let begins = |n: usize| starts.get(n).copied().unwrap_or(whole.len());
        let intact = |from: usize, to: usize| bytes.get(from..to) == whole.get(from..to);
        let groups_before = (0..starts.len()).take_while(|&n| intact(begins(n), begins(n + 1))).count();
        let result = replayed(&bytes, true);
        if let Ok((records, end)) = &result {
            for (n, (lsn, record)) in records.iter().enumerate() {
                assert_eq!(
                    (*lsn, record),
                    (n as u64 + 1, &record_at(n as u64 + 1)),
                    "a prefix of what was written"
                );
            }
            assert_eq!(*end as usize, begins(groups_before), "every whole group, and nothing else");
        }
        if only_overwritten && groups_before < starts.len() {
            let later =
                (groups_before + 1..starts.len()).any(|n| intact(begins(n), begins(n) + HEADER_BYTES));
            assert_eq!(result.is_err(), later, "refused if something acknowledged is lost, and only then");
        }
        result.is_ok()
    });
}

#[test]
fn the_log_is_written_as_it_always_was() {
    let (whole, starts) = whole_log();
    let as_it_is = |bytes: &[u8]| [b"r", bytes].concat();
    golden("segment", "ok-whole", &as_it_is(&whole));
    golden("segment", "ok-one-group", &as_it_is(&whole[..starts[1]]));
    golden("segment", "no-torn", &as_it_is(&whole[..starts[2] + 50]));
    golden("segment", "no-torn-header", &as_it_is(&whole[..starts[1] + HEADER_BYTES - 1]));
    let sealed = |group: u64, lsn: u64, records: &[&[u8]]| {
        let mut made = Group::default();
        records.iter().for_each(|record| made.push(|out| out.extend_from_slice(record)));
        made.seal(SEED, group, lsn);
        made.bytes
    };
    let empty_record = sealed(1, 1, &[b""]);
    golden("segment", "ok-empty-record", &as_it_is(&empty_record));
    golden("segment", "no-last-group-number", &as_it_is(&sealed(u64::MAX, 1, &[b"x"])));
    golden("segment", "no-last-lsn", &as_it_is(&sealed(1, u64::MAX, &[b"x", b"y"])));
    golden("segment", "no-group-twice", &as_it_is(&[&whole[..starts[1]], &whole[..starts[1]]].concat()));
    golden("segment", "no-group-missing", &as_it_is(&[&whole[..starts[1]], &whole[starts[2]..]].concat()));
    let mut claims = empty_record.clone();
    claims[24..32].fill(0xff);
    golden("segment", "no-claims-4-gib", &[b"s".as_slice(), &claims].concat());
    let mut claims = empty_record;
    claims[28..32].fill(0xff);
    golden("segment", "no-claims-records", &[b"s".as_slice(), &claims].concat());
}
