//! Why a connection failed, as text for people.

use std::{error::Error, io};

use rustls::CertificateError;

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// The server's certificate is not trusted, has expired or names another server. A retry does not
    /// help.
    #[error("{0}")]
    Certificate(String),
    /// Anything else: nothing listens there, the server is restarting, or the network is down.
    #[error("{0}")]
    Connection(String),
}

impl Lost {
    /// Extracts the cause from a nested error of a WebSocket or HTTP client.
    pub fn of(error: &(dyn Error + 'static)) -> Lost {
        match tls_error(error) {
            Some(rustls::Error::InvalidCertificate(wrong)) => Lost::Certificate(in_words(wrong)),
            Some(rustls::Error::NoCertificatesPresented) => {
                Lost::Certificate("the server shows no certificate".into())
            }
            Some(rustls::Error::InvalidMessage(_)) => Lost::Connection(
                "what answers there does not speak TLS; is the address http:// or ws://?".into(),
            ),
            Some(other) => Lost::Connection(format!("TLS failed: {other}")),
            None => Lost::Connection(innermost(error)),
        }
    }
}

fn in_words(wrong: &CertificateError) -> String {
    match wrong {
        CertificateError::UnknownIssuer => {
            "the server's certificate is signed by an authority that is not trusted here".into()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the server's certificate has expired".into()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the server's certificate is not valid yet; are both clocks right?".into()
        }
        CertificateError::NotValidForName => "the server's certificate is for another name".into(),
        CertificateError::NotValidForNameContext { expected, presented } => format!(
            "the server's certificate is not for {} but for {}",
            expected.to_str(),
            match presented.is_empty() {
                true => "no name at all".to_owned(),
                false => presented.join(", "),
            }
        ),
        CertificateError::Revoked => "the server's certificate was revoked".into(),
        other => format!("the server's certificate is not accepted: {other}"),
    }
}

/// Looks inside every `io::Error`, because its `source` skips the error it was made from.
fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref::<rustls::Error>() {
            return Some(found);
        }
        let inner = error.downcast_ref::<io::Error>().and_then(|error| error.get_ref());
        cause = match inner {
            Some(inner) => Some(inner as &(dyn Error + 'static)),
            None => error.source(),
        };
    }
    None
}

/// The innermost cause of a nested error, in lower case.
pub fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_told_from_everything_else() {
        let untrusted = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let wrapped = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, untrusted));
        assert!(matches!(Lost::of(&wrapped), Lost::Certificate(why) if why.contains("not trusted")));
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert!(matches!(Lost::of(&refused), Lost::Connection(why) if why.contains("refused")));
    }
}
