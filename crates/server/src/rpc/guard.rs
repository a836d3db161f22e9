//! Who may speak to whom: a secret that all processes of a cluster share, certificates of one authority, or both.

use std::{fs, path::Path, sync::Arc};

use tonic::{
    metadata::{Ascii, MetadataMap, MetadataValue},
    transport::{Certificate, ClientTlsConfig, Endpoint, Identity, Server, ServerTlsConfig},
};

use crate::{auth, config::Cluster};

/// How long a peer may take to show its certificate.
const HANDSHAKE: std::time::Duration = std::time::Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    #[error("{0}")]
    Secret(#[from] auth::AuthError),
    #[error("cannot read {path}, which [cluster] names: {source}")]
    Unreadable { path: String, source: std::io::Error },
    #[error("the cluster's secret must be of visible ASCII characters, since it travels in a header")]
    NotAscii,
    #[error("the cluster's certificates cannot be used: {0}; give PEM files, the key with its certificate")]
    Certificates(String),
}

/// What this process shows to others and wants to see of them. Cheap to clone.
#[derive(Clone, Default)]
pub struct Guard {
    secret: Option<Arc<str>>,
    header: Option<MetadataValue<Ascii>>,
    tls: Option<Tls>,
}

#[derive(Clone)]
struct Tls {
    authority: Certificate,
    identity: Identity,
}

impl Guard {
    pub fn from_config(cluster: &Cluster) -> Result<Guard, GuardError> {
        let secret = match (&cluster.secret, &cluster.secret_file) {
            (Some(secret), _) => Some(secret.expose().to_owned()),
            (None, Some(path)) => Some(auth::read_secret(path)?),
            (None, None) => None,
        };
        let mut guard = match secret {
            Some(secret) => Guard::by_secret(&secret)?,
            None => Guard::default(),
        };
        if let (Some(ca), Some(cert), Some(key)) = (&cluster.ca_file, &cluster.cert_file, &cluster.key_file) {
            guard = guard.with_certificates(&read(ca)?, &read(cert)?, &read(key)?);
        }
        Ok(guard)
    }

    pub fn by_secret(secret: &str) -> Result<Guard, GuardError> {
        let mut header: MetadataValue<Ascii> =
            format!("Bearer {secret}").parse().map_err(|_| GuardError::NotAscii)?;
        header.set_sensitive(true);
        Ok(Guard { secret: Some(secret.into()), header: Some(header), tls: None })
    }

    pub fn with_certificates(mut self, authority: &[u8], cert: &[u8], key: &[u8]) -> Guard {
        let authority = Certificate::from_pem(authority);
        self.tls = Some(Tls { authority, identity: Identity::from_pem(cert, key) });
        self
    }

    /// Whether whoever opens a stream with this has shown the secret. Certificates were checked before that.
    pub fn admits(&self, metadata: &MetadataMap) -> bool {
        let Some(secret) = &self.secret else { return true };
        let shown = metadata.get("authorization").and_then(|value| value.to_str().ok());
        shown
            .and_then(|value| value.strip_prefix("Bearer "))
            .is_some_and(|shown| auth::keys_match(shown, secret))
    }

    pub fn show(&self, metadata: &mut MetadataMap) {
        if let Some(header) = &self.header {
            metadata.insert("authorization", header.clone());
        }
    }

    pub fn endpoint(&self, address: &str) -> Result<Endpoint, String> {
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

/// What went wrong and all of its causes: the transport wraps them several times over.
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
