//! The way to the gateways, with R2 or R12 broken.

use std::{future::ready, sync::Arc};

use bluetick_chat::{Gateways, HandOver, HandingOver, SessionEvent};
use bluetick_store::SessionEntry;
use futures_util::{FutureExt, future::Either};

use super::{Breach, Breaches};

pub(super) struct BreachingGateways {
    pub inner: Arc<dyn Gateways>,
    pub breaches: Breaches,
}

impl Gateways for BreachingGateways {
    fn hand_over(&self, to: &SessionEntry, event: SessionEvent) -> HandingOver {
        if self.breaches.contains(Breach::R2) {
            match &event {
                SessionEvent::Wake { .. } => return Either::Left(ready(HandOver::Taken)),
                // A miss that leaves the session's entry in place.
                SessionEvent::Messages { row_written: true, .. } => {
                    return Either::Left(ready(HandOver::NotUnderstood));
                }
                _ => {}
            }
        }
        let handing = self.inner.hand_over(to, event);
        match self.breaches.contains(Breach::R12) {
            true => count_as_taken(handing),
            false => handing,
        }
    }
}

/// A refusal counts as taken, so that the entry stays and no pending row is written.
fn count_as_taken(handing: HandingOver) -> HandingOver {
    let taken = |answer| match answer {
        HandOver::Refused => HandOver::Taken,
        answer => answer,
    };
    match handing {
        Either::Left(answered) => Either::Left(ready(taken(answered.into_inner()))),
        Either::Right(unanswered) => Either::Right(Box::pin(unanswered.map(taken))),
    }
}
