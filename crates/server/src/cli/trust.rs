//! The certificate authorities that commands trust when they connect to a server.

use std::{path::PathBuf, sync::Arc};

use clap::Args;
use reqwest::Certificate;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};

use super::{Failure, Outcome};

#[derive(Debug, Default, Clone, Args)]
pub struct Trust {
    /// Trust the certificate authorities in this PEM file instead of the public ones
    #[arg(long, value_name = "FILE", env = "SSL_CERT_FILE")]
    pub ca_file: Option<PathBuf>,
}

impl Trust {
    fn certificates(&self) -> Outcome<Option<Vec<CertificateDer<'static>>>> {
        // A variable that is set to nothing is not set.
        let Some(path) = self.ca_file.as_ref().filter(|path| !path.as_os_str().is_empty()) else {
            return Ok(None);
        };
        let failed = |why: String| {
            Failure::Usage(format!(
                "no certificates can be read in {} (--ca-file or SSL_CERT_FILE): {why}",
                path.display()
            ))
        };
        let found: Vec<_> = CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect)
            .map_err(|e| failed(e.to_string().to_lowercase()))?;
        match found.is_empty() {
            true => Err(failed("it holds none in PEM".into())),
            false => Ok(Some(found)),
        }
    }

    /// For a WebSocket to this address; `None` means the public authorities. The file is read only
    /// when needed, because SSL_CERT_FILE may be set for other programs.
    pub fn websocket(&self, url: &str) -> Outcome<Option<Arc<ClientConfig>>> {
        if !url.starts_with("wss:") {
            return Ok(None);
        }
        let Some(certificates) = self.certificates()? else { return Ok(None) };
        let mut roots = RootCertStore::empty();
        // Bundles hold certificates that are too odd to be trusted; one that is good will do.
        let (taken, _) = roots.add_parsable_certificates(certificates);
        if taken == 0 {
            return Err(Failure::Usage(
                "--ca-file (or SSL_CERT_FILE) holds no certificate that can be used as an authority".into(),
            ));
        }
        Ok(Some(Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())))
    }

    /// For HTTP to this address.
    pub fn http(&self, url: &str, builder: reqwest::ClientBuilder) -> Outcome<reqwest::ClientBuilder> {
        match self.for_http(url)? {
            Some(certificates) => Ok(builder.tls_certs_only(certificates)),
            None => Ok(builder),
        }
    }

    /// For HTTP to an address that the server names, such as a bucket's: trusts the public
    /// authorities too.
    pub fn http_elsewhere(&self, builder: reqwest::ClientBuilder) -> Outcome<reqwest::ClientBuilder> {
        match self.for_http("https:")? {
            Some(certificates) => Ok(builder.tls_certs_merge(certificates)),
            None => Ok(builder),
        }
    }

    fn for_http(&self, url: &str) -> Outcome<Option<Vec<Certificate>>> {
        if !url.starts_with("https:") {
            return Ok(None);
        }
        let Some(certificates) = self.certificates()? else { return Ok(None) };
        let parsed: Result<_, _> = certificates.iter().map(|der| Certificate::from_der(der)).collect();
        parsed.map(Some).map_err(|e| Failure::Usage(format!("--ca-file (or SSL_CERT_FILE): {e}")))
    }
}

/// What to do about a certificate that is not accepted.
pub const CERTIFICATE_HINT: &str = "name the server as its certificate does (--server), or trust its authority with \
                                    --ca-file FILE or SSL_CERT_FILE";
