//! The first frame: which user it is, on which device.

use bluetick_protocol::{ClientFrame, ErrorCode, Hello, WireError, decode};

use super::{FrameSource, Identity, Incoming, SessionHost};
use crate::{Exhausted, rate_limited, units};

impl SessionHost {
    /// Waits for a valid `hello`. `None` if the client disconnects before it.
    pub(super) async fn hello(
        &self,
        source: &mut impl FrameSource,
    ) -> Option<Result<(Hello, Identity), WireError>> {
        match tokio::time::timeout(self.config.hello_deadline, self.first_frame(source)).await {
            Ok(outcome) => outcome,
            Err(_) => Some(Err(WireError::new(ErrorCode::HelloTimeout, "no hello came in time"))),
        }
    }

    async fn first_frame(
        &self,
        source: &mut impl FrameSource,
    ) -> Option<Result<(Hello, Identity), WireError>> {
        loop {
            let text = match source.next().await {
                Incoming::Text(text) => text,
                Incoming::Alive => continue,
                Incoming::Closed => return None,
                Incoming::Binary => return Some(Err(not_text())),
                Incoming::TooLarge => return Some(Err(too_large())),
            };
            let hello = match decode(text.as_ref()) {
                Ok(ClientFrame::Hello(hello)) => hello,
                Ok(_) => {
                    let why = "the first frame must be hello";
                    return Some(Err(WireError::new(ErrorCode::HelloExpected, why)));
                }
                Err(e) => return Some(Err(e.error)),
            };
            let identity = match self.tokens.check(&hello.token).await {
                Ok(identity) => identity,
                Err(e) => return Some(Err(e)),
            };
            if let Err(ms) = self.budget.take(&identity.user, units::HELLO) {
                return Some(Err(rate_limited(Exhausted::Requests, ms)));
            }
            self.take_token_profile(&identity).await;
            return Some(Ok((hello, identity)));
        }
    }
}

pub(super) fn not_text() -> WireError {
    WireError::new(ErrorCode::NotJson, "frames are JSON text, not binary")
}

pub(super) fn too_large() -> WireError {
    WireError::new(ErrorCode::FrameTooLarge, "the frame is longer than this server reads")
}
