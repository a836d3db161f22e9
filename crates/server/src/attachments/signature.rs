//! Signed addresses of this server's own: for one method, one attachment, and a time.

use bluetick_protocol::S3Ref;
use ring::hmac;

pub struct SigningKey(hmac::Key);

/// Why an address is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureError {
    Altered,
    Expired,
}

impl SigningKey {
    /// A key of its own, from a secret that serves for something else too.
    pub fn derive(secret: &str) -> SigningKey {
        let root = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let derived = hmac::sign(&root, b"bluetick signed addresses of attachments, v1");
        SigningKey(hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref()))
    }

    pub fn sign(&self, method: &str, s3_ref: &S3Ref, expires_at: u64) -> String {
        let signature = hmac::sign(&self.0, words(method, s3_ref, expires_at).as_bytes());
        signature.as_ref().iter().map(|b| format!("{b:02x}")).collect()
    }

    pub fn check(
        &self,
        method: &str,
        s3_ref: &S3Ref,
        expires_at: u64,
        signature: &str,
        now_ms: u64,
    ) -> Result<(), SignatureError> {
        let byte = |at: usize| signature.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
        let given: Option<Vec<u8>> = (0..signature.len()).step_by(2).map(byte).collect();
        let given = given.ok_or(SignatureError::Altered)?;
        // Compared in a time that does not tell where it differs.
        hmac::verify(&self.0, words(method, s3_ref, expires_at).as_bytes(), &given)
            .map_err(|_| SignatureError::Altered)?;
        if expires_at <= now_ms { Err(SignatureError::Expired) } else { Ok(()) }
    }
}

fn words(method: &str, s3_ref: &S3Ref, expires_at: u64) -> String {
    format!("{method}\n{s3_ref}\n{expires_at}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_good_as_it_is_and_for_a_time() {
        let key = SigningKey::derive("a secret");
        let (one, other) = (S3Ref::mint(1, [1; 10]), S3Ref::mint(1, [2; 10]));
        let signature = key.sign("GET", &one, 1000);
        assert_eq!(key.check("GET", &one, 1000, &signature, 999), Ok(()));
        assert_eq!(key.check("GET", &one, 1000, &signature, 1000), Err(SignatureError::Expired));
        for (method, s3_ref, expires) in [("PUT", &one, 1000), ("GET", &other, 1000), ("GET", &one, 2000)] {
            assert_eq!(key.check(method, s3_ref, expires, &signature, 0), Err(SignatureError::Altered));
        }
        for bad in ["", "é", "0", &signature[2..], &signature.replace(&signature[..2], "zz")] {
            assert_eq!(key.check("GET", &one, 1000, bad, 0), Err(SignatureError::Altered), "{bad}");
        }
        assert_ne!(SigningKey::derive("another").sign("GET", &one, 1000), signature);
    }
}
