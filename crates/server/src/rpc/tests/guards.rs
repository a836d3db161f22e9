use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};

use super::*;

/// Why a link does not come up.
async fn refusal(address: SocketAddr, guard: Guard) -> String {
    let link = link_to(address, guard, LinkConfig::default());
    until("the link is refused", || matches!(link.status(), LinkStatus::Down(_))).await;
    match link.status() {
        LinkStatus::Down(why) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn only_who_knows_the_secret_gets_in() {
    let secret = |text: &str| Guard::by_secret(text);
    let good = "a secret that is thirty-two bytes!";
    let (_listener, address) = listen(secret(good), Arc::new(Echo::default())).await;
    for wrong in [secret("a secret that is thirty-two bytes?"), secret("short"), Guard::default()] {
        let why = refusal(address, wrong).await;
        assert!(why.contains("secret"), "{why}");
    }
    let link = link_to(address, secret(good), LinkConfig::default());
    is_up(&link).await;
    assert_eq!(link.call("in".into(), within(SOON)).await.unwrap(), "in");
}

struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let cert = params.self_signed(&key).unwrap();
        Authority { pem: cert.pem(), issuer: Issuer::new(params, key) }
    }

    /// A guard with a certificate of this authority, which trusts another.
    fn guard_trusting(&self, trusted: &Authority) -> Guard {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.subject_alt_names = vec![SanType::IpAddress("127.0.0.1".parse().unwrap())];
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        let (cert, key) = (cert.pem(), key.serialize_pem());
        Guard::default().with_certificates(trusted.pem.as_bytes(), cert.as_bytes(), key.as_bytes())
    }
}

#[tokio::test]
async fn both_sides_show_a_certificate_of_the_authority() {
    crate::tls::install_provider();
    let (ours, theirs) = (Authority::new(), Authority::new());
    let (_listener, address) = listen(ours.guard_trusting(&ours), Arc::new(Echo::default())).await;
    let link = link_to(address, ours.guard_trusting(&ours), LinkConfig::default());
    is_up(&link).await;
    assert_eq!(link.call("in".into(), within(SOON)).await.unwrap(), "in");

    refusal(address, theirs.guard_trusting(&ours)).await;
    refusal(address, ours.guard_trusting(&theirs)).await;
    refusal(address, Guard::default()).await;
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let mut config = crate::config::Config::load(None, Default::default()).unwrap();
    config.cluster.secret_file = Some("/nonexistent/secret".into());
    let error = Guard::from_config(&config.cluster).err().unwrap().to_string();
    assert!(error.contains("/nonexistent/secret"), "{error}");
}
