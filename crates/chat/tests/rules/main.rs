//! The delivery rules R1–R14, and what of R15 can be seen here: the real chat code over the store in memory, with
//! the interleaving forced. A rule that has a switch is also taken out, and its scenario must then lose a message.

// Test code says what it expects by unwrapping it.
#![allow(clippy::unwrap_used)]

mod attachments;
mod batches;
mod blocks;
mod budgets;
mod cold;
mod fan_out;
mod harness;
mod outages;
mod presence;
mod r01_register_then_read;
mod r02_look_again;
mod r03_the_minimum;
mod r04_ack_delete_read_again;
mod r05_closing_pays;
mod r06_held;
mod r06_resume;
mod r06_undelivered;
mod r07_live_order;
mod r07_one_stream;
mod r08_holes;
mod r09_retries;
mod r10_receipts;
mod r11_unread;
mod r12_lost_entries;
mod r12_stale_entries;
mod r13_outbound;
mod r13_slow_readers;
mod r13_window;
mod r14_push;
mod r14_push_faults;
mod r15_durable_first;
mod revocation;
mod subscribers;
