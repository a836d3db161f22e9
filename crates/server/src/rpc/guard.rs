//! Mutual authentication: a secret that all processes of a cluster share, certificates of one authority, or both.
//!
//! Each side proves that it knows the secret before anything else is sent (`proof.rs`). With certificates and no secret,
//! mutual TLS is the proof: both certificates must be of the authority, and the listener's must name the host that was
//! called. Connections to other machines must be encrypted, unless the operator allows plain text.

use std::{fs, path::Path};

use tonic::{
    metadata::MetadataMap,
    transport::{Certificate, ClientTlsConfig, Endpoint, Identity, Server, ServerTlsConfig},
};

use super::{
    proof::{self, Handshake, Nonce, ProofSide, Prover},
    wire::{NAME, NONCE, PROOF},
};
use crate::{
    auth,
    config::{ClusterSettings, is_loopback_name},
};

/// How long a peer may take to show its certificate.
const HANDSHAKE: std::time::Duration = std::time::Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    #[error("{0}")]
    Secret(#[from] auth::AuthError),
    #[error("cannot read {path}, which [cluster] names: {source}")]
    Unreadable { path: String, source: std::io::Error },
    #[error("the cluster's certificates cannot be used: {0}; give PEM files, the key with its certificate")]
    Certificates(String),
}

/// The credentials of this process, and the checks of others. Cheap to clone.
#[derive(Clone, Default)]
pub struct Guard {
    secret: Option<Prover>,
    tls: Option<ClusterTls>,
    /// Whether plain text to other machines is allowed.
    allow_plaintext: bool,
}

/// The nonces of a link that is being opened, as the listener sees them.
pub struct Challenge {
    caller: Nonce,
    listener: Nonce,
}

impl Challenge {
    /// For the text of a caller's nonce; `None` if it is not a nonce.
    pub fn new(caller: &str) -> Result<Option<Challenge>, String> {
        let Some(caller) = as_nonce(caller) else { return Ok(None) };
        Ok(Some(Challenge { caller, listener: proof::nonce()? }))
    }

    fn handshake<'a>(&'a self, name: &'a str) -> Handshake<'a> {
        Handshake { caller: &self.caller, listener: &self.listener, name }
    }
}

/// A listener's name, nonce and proof.
pub struct Greeting {
    name: String,
    nonce: Nonce,
    proof: Vec<u8>,
}

impl Greeting {
    pub fn read(metadata: &MetadataMap) -> Option<Greeting> {
        let text = |key: &str| metadata.get(key).and_then(|value| value.to_str().ok());
        let proof = text(PROOF).map_or(Some(Vec::new()), proof::from_hex)?;
        Some(Greeting { name: text(NAME)?.to_owned(), nonce: as_nonce(text(NONCE)?)?, proof })
    }
}

fn as_nonce(text: &str) -> Option<Nonce> {
    proof::from_hex(text)?.try_into().ok()
}

#[derive(Clone)]
struct ClusterTls {
    authority: Certificate,
    identity: Identity,
}

impl Guard {
    pub fn from_config(cluster: &ClusterSettings) -> Result<Guard, GuardError> {
        let secret = match (&cluster.secret, &cluster.secret_file) {
            (Some(secret), _) => Some(secret.expose().to_owned()),
            (None, Some(path)) => Some(auth::read_secret(path)?),
            (None, None) => None,
        };
        let mut guard = match secret {
            Some(secret) => Guard::by_secret(&secret),
            None => Guard::default(),
        };
        if let (Some(ca), Some(cert), Some(key)) = (&cluster.ca_file, &cluster.cert_file, &cluster.key_file) {
            guard = guard.with_certificates(&read(ca)?, &read(cert)?, &read(key)?);
        }
        guard.allow_plaintext = cluster.allow_plaintext;
        Ok(guard)
    }

    pub fn by_secret(secret: &str) -> Guard {
        Guard { secret: Some(Prover::new(secret)), ..Guard::default() }
    }

    /// Signs the entries of the directory; `None` without a secret.
    pub fn prover(&self) -> Option<&Prover> {
        self.secret.as_ref()
    }

    pub fn with_certificates(mut self, authority: &[u8], cert: &[u8], key: &[u8]) -> Guard {
        let authority = Certificate::from_pem(authority);
        self.tls = Some(ClusterTls { authority, identity: Identity::from_pem(cert, key) });
        self
    }

    /// The listener's part of the handshake: its name and proof, for the headers of its response.
    pub fn greet(
        &self,
        challenge: &Challenge,
        name: &str,
        metadata: &mut MetadataMap,
    ) -> Result<(), &'static str> {
        let mut put = |key: &'static str, value: &str| -> Result<(), &'static str> {
            metadata
                .insert(key, value.parse().map_err(|_| "this process has a name that cannot be a header")?);
            Ok(())
        };
        put(NAME, name)?;
        put(NONCE, &auth::hex(&challenge.listener))?;
        match &self.secret {
            Some(prover) => {
                put(PROOF, &auth::hex(&prover.prove(ProofSide::Listener, &challenge.handshake(name))))
            }
            None => Ok(()),
        }
    }

    /// The caller's part of the handshake: checks the listener's greeting, and returns the caller's proof.
    pub fn answer(
        &self,
        nonce: &Nonce,
        greeting: Option<Greeting>,
        is_expected: impl Fn(&str) -> bool,
    ) -> Result<Vec<u8>, String> {
        let Some(Greeting { name, nonce: listener, proof }) = greeting else {
            return Err(
                "it does not greet as a process of this version does; are the two of the same?".into()
            );
        };
        let handshake = Handshake { caller: nonce, listener: &listener, name: &name };
        let answer = match &self.secret {
            None => Vec::new(),
            Some(prover) => {
                if !prover.is_proven(ProofSide::Listener, &handshake, &proof) {
                    metrics::counter!("bluetick_rpc_unproven_total").increment(1);
                    return Err(
                        "it does not prove to know the cluster's secret; nothing was sent to it. All \
                                processes must have the same secret"
                            .into(),
                    );
                }
                prover.prove(ProofSide::Caller, &handshake)
            }
        };
        if !is_expected(&name) {
            return Err(format!("another process answers there, {name:?}"));
        }
        Ok(answer)
    }

    /// Whether the caller has proven to know the secret. TLS has checked certificates before.
    pub fn admits(&self, challenge: &Challenge, name: &str, proof: &[u8]) -> bool {
        let Some(prover) = &self.secret else { return true };
        prover.is_proven(ProofSide::Caller, &challenge.handshake(name), proof)
    }

    pub fn endpoint(&self, address: &str) -> Result<Endpoint, String> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let is_elsewhere = !is_loopback_name(host);
        // An address may come from Redis: checking the configuration is not enough.
        if self.tls.is_none() && self.secret.is_none() && is_elsewhere {
            return Err(format!(
                "{address} is another machine, and nothing proves who answers there; set cluster.secret_file, or \
                 cluster.ca_file, cert_file and key_file"
            ));
        }
        if self.tls.is_none() && !self.allow_plaintext && is_elsewhere {
            return Err(format!(
                "{address} is another machine, and messages would go there in clear text; set cluster.ca_file, \
                 cert_file and key_file, or cluster.allow_plaintext = true in a network that nobody else is in"
            ));
        }
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))
            .map_err(|_| format!("{address:?} is not a host with a port"))?;
        match &self.tls {
            None => Ok(endpoint),
            Some(tls) => {
                let config = ClientTlsConfig::new()
                    .ca_certificate(tls.authority.clone())
                    .identity(tls.identity.clone());
                endpoint.tls_config(config).map_err(|e| describe(&e))
            }
        }
    }

    pub fn server(&self) -> Result<Server, GuardError> {
        let server = Server::builder();
        match &self.tls {
            None => Ok(server),
            Some(tls) => {
                let config = ServerTlsConfig::new()
                    .identity(tls.identity.clone())
                    .client_ca_root(tls.authority.clone())
                    .timeout(HANDSHAKE);
                server.tls_config(config).map_err(|e| GuardError::Certificates(describe(&e)))
            }
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, GuardError> {
    fs::read(path).map_err(|source| GuardError::Unreadable { path: path.display().to_string(), source })
}

/// An error with all its causes: the transport wraps them several times.
pub fn describe(error: &(dyn std::error::Error + 'static)) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(next) = cause {
        let said = next.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = next.source();
    }
    text
}
