//! One timer for a whole conversation, where one for each frame would cost more than the frame.

use std::{pin::Pin, time::Duration};

use tokio::time::{Instant, Sleep, sleep_until};

/// A server that says nothing for so long, while something is owed, has lost it.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub struct Patience {
    since: Instant,
    alarm: Pin<Box<Sleep>>,
}

impl Patience {
    pub fn new() -> Patience {
        let since = Instant::now();
        Patience { since, alarm: Box::pin(sleep_until(since + PATIENCE)) }
    }

    /// Something was heard, or something new is owed.
    pub fn renew(&mut self) {
        self.since = Instant::now();
    }

    /// Wakes earlier than that for once.
    pub fn wake_at(&mut self, moment: std::time::Instant) {
        self.alarm.as_mut().reset(moment.into());
    }

    /// Returns now and then: true if the patience is at its end. Cancelling this loses nothing.
    pub async fn rings(&mut self) -> bool {
        self.alarm.as_mut().await;
        let end = self.since + PATIENCE;
        let over = Instant::now() >= end;
        self.alarm.as_mut().reset(if over { Instant::now() + PATIENCE } else { end });
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_early_alarm_is_not_the_end_of_patience() {
        let mut patience = Patience::new();
        patience.wake_at(std::time::Instant::now());
        assert!(!patience.rings().await);
        patience.since -= PATIENCE;
        patience.wake_at(std::time::Instant::now());
        assert!(patience.rings().await);
        patience.renew();
        patience.wake_at(std::time::Instant::now());
        assert!(!patience.rings().await, "something was heard meanwhile");
    }
}
