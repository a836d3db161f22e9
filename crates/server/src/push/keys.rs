//! P-256 keys in PEM files: Apple's, and the one by which browsers know this server.

use std::{fs, path::Path};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::EncodingKey;
use p256::{
    SecretKey,
    elliptic_curve::{rand_core::OsRng, sec1::ToEncodedPoint as _},
    pkcs8::{DecodePrivateKey as _, EncodePrivateKey as _, LineEnding},
};
use rustls::pki_types::{PrivateKeyDer, pem::PemObject as _};

use super::PushError;

/// A key that signs with ES256, and its public half as base64url of the uncompressed point.
pub(super) struct SigningPair {
    pub(super) private: EncodingKey,
    pub(super) public: String,
}

/// Reads PKCS#8 (as Apple's .p8) or SEC1 (as `openssl ecparam -genkey` writes it). Errors name
/// `setting`, and never the content of the file.
pub(super) fn read_p256(setting: &str, path: &Path) -> Result<SigningPair, PushError> {
    let refused = |why: &str| PushError(format!("{setting}: {}: {why}", path.display()));
    let pem = fs::read(path).map_err(|e| refused(&e.to_string()))?;
    let secret = match PrivateKeyDer::from_pem_slice(&pem) {
        Ok(PrivateKeyDer::Pkcs8(der)) => SecretKey::from_pkcs8_der(der.secret_pkcs8_der()).ok(),
        Ok(PrivateKeyDer::Sec1(der)) => SecretKey::from_sec1_der(der.secret_sec1_der()).ok(),
        _ => None,
    };
    let secret = secret.ok_or_else(|| refused("this is not a private P-256 key in PEM"))?;
    let der = secret.to_pkcs8_der().map_err(|_| refused("this key cannot be used"))?;
    Ok(SigningPair { private: EncodingKey::from_ec_der(der.as_bytes()), public: public_half(&secret) })
}

/// A new key for Web Push: the PEM file's text, and the public half.
pub fn make_vapid_key() -> Result<(String, String), PushError> {
    let secret = SecretKey::random(&mut OsRng);
    let pem = secret
        .to_pkcs8_pem(LineEnding::LF)
        .map_err(|e| PushError(format!("the key cannot be written as PEM: {e}")))?;
    Ok((pem.to_string(), public_half(&secret)))
}

fn public_half(secret: &SecretKey) -> String {
    URL_SAFE_NO_PAD.encode(secret.public_key().to_encoded_point(false).as_bytes())
}
