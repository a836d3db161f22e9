//! Numbers that nobody can foresee, for names and seeds.

use rand::{TryRng as _, rngs::SysRng};

/// A number from the operating system; from an address and the time of day where it has none to give.
pub fn draw() -> u64 {
    SysRng.try_next_u64().unwrap_or_else(|_| {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let here = &raw const since as u64;
        here.rotate_left(32) ^ since.as_nanos() as u64
    })
}
