//! Proofs that a process knows the cluster's secret. The secret itself never travels.
//!
//! | proof | HMAC-SHA256 over | made by |
//! | --- | --- | --- |
//! | listener's | both nonces, the listener's name | whoever accepts a link, in the headers of its answer |
//! | caller's | both nonces, the listener's name | whoever opened it, in the first message on the stream |
//! | entry | role, address, expiry | whoever announces itself in the directory |
//!
//! Each side of a link draws a nonce, so that a proof cannot be replayed. The listener's name (`host:port#boot`) is in
//! both proofs and is compared with the one that the caller expects, so that a process in between cannot pass on the
//! proofs of another listener. Each kind of proof has its own key and label, so that none can stand for another.

use ring::{
    hmac::{HMAC_SHA256, Key, sign, verify},
    rand::{SecureRandom as _, SystemRandom},
};

pub const NONCE_BYTES: usize = 32;

pub type Nonce = [u8; NONCE_BYTES];

/// A random number for one handshake.
pub fn nonce() -> Result<Nonce, String> {
    let mut nonce = [0; NONCE_BYTES];
    SystemRandom::new().fill(&mut nonce).map_err(|_| "the operating system gives no random numbers")?;
    Ok(nonce)
}

/// The keys that are derived from the cluster's secret.
#[derive(Clone)]
pub struct Prover {
    link: Key,
    directory: Key,
}

/// What both sides of a handshake know.
pub struct Handshake<'a> {
    pub caller: &'a Nonce,
    pub listener: &'a Nonce,
    /// The listener's name: `host:port#boot`.
    pub name: &'a str,
}

#[derive(Clone, Copy)]
pub enum ProofSide {
    Caller,
    Listener,
}

impl Prover {
    pub fn new(secret: &str) -> Prover {
        let secret = Key::new(HMAC_SHA256, secret.as_bytes());
        let derive = |label: &[u8]| Key::new(HMAC_SHA256, sign(&secret, label).as_ref());
        Prover { link: derive(b"bluetick cluster link"), directory: derive(b"bluetick cluster directory") }
    }

    pub fn prove(&self, side: ProofSide, handshake: &Handshake<'_>) -> Vec<u8> {
        sign(&self.link, &about_link(side, handshake)).as_ref().to_vec()
    }

    /// Whether this is the proof of the given side. Takes constant time.
    pub fn is_proven(&self, side: ProofSide, handshake: &Handshake<'_>, proof: &[u8]) -> bool {
        verify(&self.link, &about_link(side, handshake), proof).is_ok()
    }

    pub fn sign_entry(&self, role: &str, address: &str, expires_at_ms: u64) -> Vec<u8> {
        sign(&self.directory, &about_entry(role, address, expires_at_ms)).as_ref().to_vec()
    }

    pub fn is_signed_entry(&self, role: &str, address: &str, expires_at_ms: u64, proof: &[u8]) -> bool {
        verify(&self.directory, &about_entry(role, address, expires_at_ms), proof).is_ok()
    }
}

fn about_link(side: ProofSide, handshake: &Handshake<'_>) -> Vec<u8> {
    let label: &[u8] = match side {
        ProofSide::Caller => b"caller",
        ProofSide::Listener => b"listener",
    };
    joined(&[label, handshake.caller, handshake.listener, handshake.name.as_bytes()])
}

fn about_entry(role: &str, address: &str, expires_at_ms: u64) -> Vec<u8> {
    joined(&[role.as_bytes(), address.as_bytes(), &expires_at_ms.to_be_bytes()])
}

/// Each part with its length before it, so that no two lists have the same encoding.
fn joined(parts: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    for part in parts {
        out.extend_from_slice(&(part.len() as u64).to_be_bytes());
        out.extend_from_slice(part);
    }
    out
}

pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::hex;

    #[test]
    fn a_proof_is_good_for_one_handshake_one_side_and_one_secret() {
        let (ours, theirs) = (Prover::new("a secret"), Prover::new("another secret"));
        let (one, two) = (nonce().unwrap(), nonce().unwrap());
        assert_ne!(one, two);
        let handshake = Handshake { caller: &one, listener: &two, name: "a:1#7" };
        let proof = ours.prove(ProofSide::Listener, &handshake);
        assert!(ours.is_proven(ProofSide::Listener, &handshake, &proof));
        assert!(!ours.is_proven(ProofSide::Caller, &handshake, &proof), "it cannot be sent back");
        assert!(!theirs.is_proven(ProofSide::Listener, &handshake, &proof));
        assert!(!ours.is_proven(ProofSide::Listener, &handshake, &proof[1..]));
        assert!(!ours.is_proven(ProofSide::Listener, &handshake, b""));
        for other in [
            Handshake { caller: &two, listener: &one, name: "a:1#7" },
            Handshake { caller: &one, listener: &one, name: "a:1#7" },
            Handshake { caller: &one, listener: &two, name: "a:1#8" },
        ] {
            assert!(!ours.is_proven(ProofSide::Listener, &other, &proof));
        }
    }

    #[test]
    fn an_entry_is_signed_whole() {
        let prover = Prover::new("a secret");
        let proof = prover.sign_entry("app", "a:1", 9);
        assert!(prover.is_signed_entry("app", "a:1", 9, &proof));
        for (role, address, expires_at) in [("gateway", "a:1", 9), ("app", "a:2", 9), ("app", "a:1", 10)] {
            assert!(!prover.is_signed_entry(role, address, expires_at, &proof));
        }
        assert!(!Prover::new("b").is_signed_entry("app", "a:1", 9, &proof));
    }

    #[test]
    fn hex_there_and_back() {
        assert_eq!(from_hex(&hex(&[0, 9, 255])), Some(vec![0, 9, 255]));
        for wrong in ["0", "zz", "+1", "é1"] {
            assert_eq!(from_hex(wrong), None, "{wrong}");
        }
    }
}
