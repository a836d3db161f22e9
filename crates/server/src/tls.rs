//! TLS from certificate files, which are reloaded when they change. Only new connections use the
//! new certificate.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwap;
use rustls::{
    ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio_rustls::TlsAcceptor;

const POLL_EVERY: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read a PEM certificate chain from {path}: {why}")]
    Certificate { path: String, why: String },
    #[error("cannot read a PEM private key from {path}: {why}")]
    Key { path: String, why: String },
    #[error("the certificate in {cert} and the private key in {key} do not make a pair: {why}")]
    Mismatch { cert: String, key: String, why: String },
    #[error("tls cannot be set up: {0}")]
    Setup(#[from] rustls::Error),
}

/// Makes ring the process's provider. Doing it twice is harmless.
pub fn install_provider() {
    let _ = ring::default_provider().install_default();
}

/// Accepts TLS with these files, and watches them.
pub fn acceptor(cert: &Path, key: &Path) -> Result<TlsAcceptor, TlsError> {
    acceptor_polling(cert, key, POLL_EVERY)
}

fn acceptor_polling(cert: &Path, key: &Path, every: Duration) -> Result<TlsAcceptor, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let files = Files { cert: cert.to_owned(), key: key.to_owned(), provider: provider.clone() };
    // Before reading, so that a change in between is seen at the first look.
    let stamp = files.stamp();
    let resolver = Arc::new(Resolver { current: ArcSwap::from_pointee(files.read()?) });
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(resolver.clone());
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    tokio::spawn(watch(files, stamp, Arc::downgrade(&resolver), every));
    Ok(TlsAcceptor::from(Arc::new(config)))
}

struct Resolver {
    current: ArcSwap<CertifiedKey>,
}

impl std::fmt::Debug for Resolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Resolver")
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load_full())
    }
}

struct Files {
    cert: PathBuf,
    key: PathBuf,
    provider: Arc<CryptoProvider>,
}

/// What tells a changed file; a link that is pointed elsewhere changes the inode.
type Stamp = [Option<(SystemTime, u64, u64)>; 2];

impl Files {
    fn stamp(&self) -> Stamp {
        [&self.cert, &self.key].map(|path| {
            let metadata = fs::metadata(path).ok()?;
            Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
        })
    }

    fn read(&self) -> Result<CertifiedKey, TlsError> {
        let (cert, key) = (self.cert.display().to_string(), self.key.display().to_string());
        let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(&self.cert).and_then(Iterator::collect);
        let chain = match chain {
            Ok(chain) if chain.is_empty() => {
                return Err(TlsError::Certificate { path: cert, why: "there is none in it".into() });
            }
            Ok(chain) => chain,
            Err(e) => {
                return Err(TlsError::Certificate { path: cert, why: e.to_string() });
            }
        };
        let private = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|e| TlsError::Key { path: key.clone(), why: e.to_string() })?;
        CertifiedKey::from_der(chain, private, &self.provider).map_err(|e| TlsError::Mismatch {
            cert,
            key,
            why: e.to_string(),
        })
    }
}

/// Polls the files until the resolver is dropped. Two files cannot change at once, so a mismatched
/// pair is expected for a moment: the old one stays, and the next poll retries.
async fn watch(files: Files, mut seen: Stamp, resolver: std::sync::Weak<Resolver>, every: Duration) {
    let mut files = files;
    loop {
        tokio::time::sleep(every).await;
        let Some(resolver) = resolver.upgrade() else {
            return;
        };
        let looked = tokio::task::spawn_blocking(move || {
            let stamp = files.stamp();
            let read = (stamp != seen).then(|| files.read());
            (files, stamp, read)
        });
        let Ok((back, stamp, read)) = looked.await else {
            return;
        };
        files = back;
        match read {
            None => {}
            Some(Ok(pair)) => {
                resolver.current.store(Arc::new(pair));
                tracing::info!(cert = %files.cert.display(), "tls certificate reloaded");
                seen = stamp;
            }
            Some(Err(error)) => {
                tracing::error!(%error, "tls certificate not reloaded, the old one stays in use");
                seen = stamp;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::{TcpListener, TcpStream},
    };

    fn write_pair(dir: &Path) -> CertificateDer<'static> {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
        fs::write(dir.join("tls.key"), made.signing_key.serialize_pem()).unwrap();
        fs::write(dir.join("tls.crt"), made.cert.pem()).unwrap();
        made.cert.der().clone()
    }

    /// Says hello over TLS to whoever holds `trusted`, or fails.
    async fn greet(
        address: std::net::SocketAddr,
        trusted: &CertificateDer<'static>,
    ) -> std::io::Result<String> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(trusted.clone()).unwrap();
        let config = rustls::ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let stream = TcpStream::connect(address).await?;
        let mut stream = connector.connect("localhost".try_into().unwrap(), stream).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok(text)
    }

    async fn eventually(address: std::net::SocketAddr, trusted: &CertificateDer<'static>) -> bool {
        for _ in 0..100 {
            if greet(address, trusted).await.is_ok_and(|text| text == "hello") {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        false
    }

    #[tokio::test]
    async fn a_changed_certificate_is_taken_and_a_bad_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let (cert, key) = (dir.path().join("tls.crt"), dir.path().join("tls.key"));
        let first = write_pair(dir.path());
        let acceptor = acceptor_polling(&cert, &key, Duration::from_millis(20)).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    if let Ok(mut stream) = acceptor.accept(stream).await {
                        let _ = stream.write_all(b"hello").await;
                        let _ = stream.shutdown().await;
                    }
                });
            }
        });
        assert_eq!(greet(address, &first).await.unwrap(), "hello");

        fs::write(&cert, "not a certificate").unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(greet(address, &first).await.unwrap(), "hello", "the old one stays");

        let second = write_pair(dir.path());
        assert!(eventually(address, &second).await);
        assert!(greet(address, &first).await.is_err());
    }

    #[tokio::test]
    async fn files_that_do_not_fit_are_told_apart() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write_pair(one.path());
        write_pair(other.path());
        let refused = |cert: PathBuf, key: PathBuf| acceptor(&cert, &key).err().map(|e| e.to_string());
        let (cert, key) = (one.path().join("tls.crt"), one.path().join("tls.key"));
        assert!(refused(cert.clone(), other.path().join("tls.key")).unwrap().contains("pair"));
        assert!(refused(cert.clone(), cert.clone()).unwrap().contains("private key"));
        assert!(refused(key.clone(), key).unwrap().contains("certificate"));
        assert!(refused(one.path().join("none"), cert).unwrap().contains("none"));
    }
}
