//! Mutations of seeds by proptest, which also shrinks a failure to the fewest edits.

use proptest::{
    collection::vec,
    prelude::*,
    sample::select,
    test_runner::{Config, TestError, TestRunner},
};

/// An offset or a length, taken modulo what there is.
type Offset = usize;

#[derive(Debug, Clone)]
enum Edit {
    Set(Offset, u8),
    Flip(Offset, u8),
    Insert(Offset, Vec<u8>),
    Remove(Offset, Offset),
    Cut(Offset),
    Repeat(Offset, Offset, u8),
    /// A piece of another seed.
    Splice(Offset, usize, Offset, Offset),
}

/// What the formats treat specially: JSON's edge cases, numbers at their limits, lengths that claim
/// too much.
const WORDS: &[&[u8]] = &[
    b"null",
    b"true",
    b"{}",
    b"[[[[",
    b"\"\"",
    b"-0",
    b"-1",
    b"1e999",
    b"0.5",
    b"9007199254740993",
    b"9223372036854775807",
    b"9223372036854775808",
    b"18446744073709551615",
    b"18446744073709551616",
    b"\\u0000",
    b"\\ud800",
    b"\\ud83d\\ude00",
    b"\\\"",
    b"\0",
    b".",
    b"~",
    b"=",
    b" at line ",
    b"invalid id: ",
    b",\"ref\":1",
    b",\"type\":\"ping\"",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02",
    b"\x80\x80\x80\x80\x80\x20",
    b"\x80\x00",
    "é".as_bytes(),
    "\u{2028}".as_bytes(),
    "😀".as_bytes(),
];

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let place = any::<Offset>;
    let short = || 0usize..16;
    let edit = prop_oneof![
        4 => (place(), any::<u8>()).prop_map(|(at, byte)| Edit::Set(at, byte)),
        4 => (place(), 0u8..8).prop_map(|(at, bit)| Edit::Flip(at, bit)),
        2 => (place(), vec(any::<u8>(), 1..6)).prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        4 => (place(), select(WORDS)).prop_map(|(at, word)| Edit::Insert(at, word.to_vec())),
        3 => (place(), short()).prop_map(|(at, len)| Edit::Remove(at, len)),
        1 => (place(), place()).prop_map(|(at, len)| Edit::Remove(at, len)),
        1 => place().prop_map(Edit::Cut),
        1 => (place(), place(), any::<u8>()).prop_map(|(at, len, times)| Edit::Repeat(at, len, times)),
        2 => (place(), any::<usize>(), place(), place())
            .prop_map(|(at, seed, from, len)| Edit::Splice(at, seed, from, len)),
    ];
    vec(edit, 1..6)
}

/// Runs the target over `cases` mutations. The error is the smallest failing input, and how it
/// fails.
pub(crate) fn run(
    seeds: &[Vec<u8>],
    cases: u32,
    target: impl Fn(&[u8]) -> bool,
) -> Result<(), (Vec<u8>, String)> {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let input = (select(seeds.to_vec()), edits()).prop_map(|(seed, edits)| apply(seed, &edits, seeds));
    let result = TestRunner::new(config).run(&input, |input| {
        target(&input);
        Ok(())
    });
    match result {
        Ok(()) => Ok(()),
        Err(TestError::Fail(why, input)) => Err((input, why.to_string())),
        Err(TestError::Abort(why)) => panic!("the run was given up: {why}"),
    }
}

/// Mutations do not make an input longer than this.
const MAX_BYTES: usize = 16 * 1024;

fn apply(mut bytes: Vec<u8>, edits: &[Edit], seeds: &[Vec<u8>]) -> Vec<u8> {
    for edit in edits {
        let len = bytes.len();
        let place = |at: Offset| at % (len + 1);
        let range = |at: Offset, count: Offset| place(at)..place(at) + count % (len - place(at) + 1);
        match edit {
            Edit::Set(at, byte) => bytes.iter_mut().skip(place(*at)).take(1).for_each(|b| *b = *byte),
            Edit::Flip(at, bit) => bytes.iter_mut().skip(place(*at)).take(1).for_each(|b| *b ^= 1 << bit),
            Edit::Insert(at, new) => drop(bytes.splice(place(*at)..place(*at), new.iter().copied())),
            Edit::Remove(at, count) => drop(bytes.drain(range(*at, *count))),
            Edit::Cut(at) => bytes.truncate(place(*at)),
            Edit::Repeat(at, count, times) => {
                let again = bytes[range(*at, *count)].repeat(usize::from(*times));
                drop(bytes.splice(place(*at)..place(*at), again.into_iter().take(MAX_BYTES)));
            }
            Edit::Splice(at, seed, from, count) => {
                let other = &seeds[seed % seeds.len()];
                let from = from % (other.len() + 1);
                let piece = &other[from..from + count % (other.len() - from + 1)];
                drop(bytes.splice(place(*at)..place(*at), piece.iter().copied()));
            }
        }
        bytes.truncate(MAX_BYTES.max(len));
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_found_and_its_input_made_small() {
        let seeds = [b"{\"type\":\"ping\"}".to_vec(), b"other".to_vec()];
        let found = run(&seeds, 20_000, |input| {
            assert!(!input.windows(4).any(|w| w == b"[[[["), "there it is");
            true
        });
        let (input, why) = found.expect_err("a word of the list was never tried");
        assert!(input.windows(4).any(|w| w == b"[[[["), "{}", input.escape_ascii());
        assert!(input.len() <= seeds[0].len() + 4, "{}", input.escape_ascii());
        assert!(why.contains("there it is"), "{why}");
    }
}
