//! Points at which a debug build can be made to crash, to test recovery.
//!
//! Each point lies between two steps that become durable or visible one after the other. An armed
//! point ends the process with SIGKILL at its nth pass: nothing is flushed and no destructor runs,
//! as in a real crash. `BLUETICK_FAILPOINT=name[:nth]` arms one when the server starts. In a
//! release build `hit` is empty and the variable has no effect.

#[cfg(debug_assertions)]
mod armed {
    use std::sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    };

    /// Every point. Those of a first start need an empty data directory, those of a restore
    /// `bluetick restore`; a running server passes all others.
    pub const ALL: &[&str] = &[
        // A directory is created: its version, the engine, the seed, the log, the keys.
        "first_start.version_begun",
        "first_start.version_written",
        "first_start.engine_made",
        "first_start.seed_drawn",
        "first_start.segment_made",
        "first_start.secret_written",
        "first_start.secret_linked",
        // A group commit.
        "log.half_a_group",
        "log.group_written",
        "log.group_synced",
        "commit.published",
        // The log moves to a new segment, cuts a torn tail, deletes segments one by one.
        "log.room_cut",
        "log.segment_made",
        "log.tail_cut",
        "log.segment_dropped",
        // A checkpoint, keyspace by keyspace.
        "checkpoint.begun",
        "checkpoint.half_a_run",
        "checkpoint.erased_voided",
        "checkpoint.messages_written",
        "checkpoint.sent_ids_written",
        "checkpoint.pending_written",
        "checkpoint.members_written",
        "checkpoint.users_written",
        "checkpoint.small_rows_written",
        "checkpoint.conversations_written",
        "checkpoint.marked",
        // The steps of the rules.
        "send.committed",
        "deliver.handed_over",
        "deliver.nobody_took_it",
        "deliver.row_written",
        "ack.stored",
        "settle.row_removed",
        "close.owes",
        "close.row_moved",
        "erase.member_erased",
        // A run of messages becomes cold; a cold run is erased.
        "cold.object_written",
        "cold.object_verified",
        "cold.recorded",
        "cold.some_dropped",
        "cold.all_dropped",
        "cold.erased_anew",
        "cold.erased_swapped",
        "cold.erased_purged",
        "cold.swept",
        // A restored store is moved into place.
        "restore.filled",
        "restore.entry_moved",
    ];

    static ARMED: OnceLock<(&'static str, AtomicU64)> = OnceLock::new();

    /// Arms a point: its nth pass ends the process. A process can arm one point only.
    pub fn arm(name: &str, nth: u64) -> Result<(), String> {
        let Some(&known) = ALL.iter().find(|known| **known == name) else {
            return Err(format!("there is no failpoint {name:?}; there are {}", ALL.join(", ")));
        };
        if nth == 0 {
            return Err("passes of a failpoint are counted from 1".into());
        }
        ARMED.set((known, AtomicU64::new(nth))).map_err(|_| "a failpoint is armed already".into())
    }

    /// Arms a point given as `name` or `name:nth`.
    pub fn arm_as_told(told: &str) -> Result<(), String> {
        match told.split_once(':') {
            None => arm(told, 1),
            Some((name, nth)) => {
                let nth = nth.parse().map_err(|_| format!("{nth:?} is not the number of a pass"))?;
                arm(name, nth)
            }
        }
    }

    /// Passes a point. The process ends here if the point is armed and this is the nth pass.
    pub fn hit(name: &str) {
        hit_after(name, || {});
    }

    /// The same, with a last action before the end, for a step that is interrupted halfway.
    pub fn hit_after(name: &str, last_act: impl FnOnce()) {
        if let Some((armed, left)) = ARMED.get()
            && *armed == name
            && left.fetch_sub(1, Ordering::Relaxed) == 1
        {
            last_act();
            end();
        }
    }

    fn end() -> ! {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        // The signal is being delivered; this thread must do nothing more.
        loop {
            std::thread::park();
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn what_is_not_understood_is_refused_by_name() {
            let unknown = arm_as_told("log.nowhere").unwrap_err();
            assert!(unknown.contains("log.nowhere") && unknown.contains("log.group_synced"), "{unknown}");
            assert!(arm_as_told("log.group_synced:soon").unwrap_err().contains("soon"));
            assert!(arm_as_told("log.group_synced:0").is_err());
            assert!(ARMED.get().is_none(), "a mistake arms nothing");
        }

        #[test]
        fn no_name_is_listed_twice() {
            let mut names = ALL.to_vec();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), ALL.len());
        }
    }
}

#[cfg(debug_assertions)]
pub use armed::{ALL, arm, arm_as_told, hit, hit_after};

#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn hit(_name: &str) {}

#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn hit_after(_name: &str, _last_act: impl FnOnce()) {}
