//! Signed requests against a real S3 server, made by a client that has nothing but them.
//! `scripts/services start` runs one.
//!
//! That server checks signatures, expiry, SHA-256 checksums and `If-None-Match`, as Amazon's does.

// Test code says what it expects by unwrapping it.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use bluetick_protocol::SignedRequest;
use bluetick_store::{Objects, S3Config, StoreError, UploadTerms};

const HELLO: &[u8] = b"hello, bucket";
const HOUR: Duration = Duration::from_secs(3600);

fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().unwrap()
}

/// Objects in a bucket of this test's own.
async fn bucket() -> Objects {
    let endpoint = std::env::var("BLUETICK_TEST_S3").unwrap_or_else(|_| {
        panic!(
            "BLUETICK_TEST_S3 is not set: run `scripts/services start`, then eval \"$(scripts/services env)\""
        )
    });
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let bucket = format!("t{}x{}", since.as_nanos(), std::process::id());
    let objects = Objects::s3(&S3Config {
        bucket: bucket.clone(),
        prefix: "some/where".into(),
        region: Some("us-east-1".into()),
        endpoint: Some(endpoint.clone()),
        path_style: true,
        access_key_id: Some("test".into()),
        secret_access_key: Some("test".into()),
    });
    let objects = objects.unwrap();
    let made = client().put(format!("{endpoint}/{bucket}")).send().await.unwrap();
    assert!(made.status().is_success(), "{}", made.status());
    objects
}

fn sha256(bytes: &[u8]) -> String {
    ring::digest::digest(&ring::digest::SHA256, bytes).as_ref().iter().map(|b| format!("{b:02x}")).collect()
}

/// Makes a signed request, but for what is changed about it.
async fn make(request: &SignedRequest, body: &[u8], but: &[(&str, &str)]) -> reqwest::Response {
    let mut made = client().request(request.method.parse().unwrap(), &request.url);
    for (name, value) in request.headers.iter().filter(|(name, _)| *name != "content-length") {
        let changed = but.iter().find(|(changed, _)| changed == name).map(|(_, value)| *value);
        let value = changed.unwrap_or(value);
        if !value.is_empty() {
            made = made.header(name, value);
        }
    }
    made.body(body.to_vec()).send().await.unwrap()
}

#[tokio::test]
async fn a_signed_upload_is_taken_as_it_was_announced_and_once() {
    let objects = bucket().await;
    let sha256 = sha256(HELLO);
    let terms = UploadTerms { bytes: HELLO.len() as u64, sha256: &sha256, expires: HOUR };
    let put = objects.sign_put("attachments/00/a", "text/plain", &terms).await.unwrap();
    assert_eq!(put.headers["content-length"], HELLO.len().to_string());

    assert_eq!(make(&put, b"other, bucket", &[]).await.status(), 400, "other bytes of this length");
    assert_eq!(make(&put, b"longer than announced", &[]).await.status(), 403, "another length");
    assert_eq!(make(&put, HELLO, &[("content-type", "text/html")]).await.status(), 403, "another type");
    assert_eq!(make(&put, HELLO, &[("if-none-match", "")]).await.status(), 403, "ready to overwrite");
    let altered = SignedRequest { url: put.url.replace("00/a", "00/b"), ..put.clone() };
    assert_eq!(make(&altered, HELLO, &[]).await.status(), 403, "another key");
    assert!(objects.info("attachments/00/a").await.unwrap().is_none());

    let answer = make(&put, HELLO, &[]).await;
    assert_eq!(answer.status(), 200, "{:?}", answer.text().await);
    assert_eq!(make(&put, HELLO, &[]).await.status(), 412, "it is there");
    assert_eq!(objects.info("attachments/00/a").await.unwrap().unwrap().bytes, HELLO.len() as u64);
}

#[tokio::test]
async fn a_download_is_read_by_ranges_under_its_own_name_until_it_expires() {
    let objects = bucket().await;
    assert!(objects.put_new("attachments/00/a", HELLO.into()).await.unwrap());
    let disposition = "attachment; filename=\"a_.txt\"; filename*=UTF-8''%C3%A4.txt";
    let url = objects.sign_get("attachments/00/a", "text/plain", disposition, HOUR).await.unwrap();
    let answer = client().get(&url).header("range", "bytes=7-").send().await.unwrap();
    assert_eq!(answer.status(), 206);
    assert_eq!(answer.headers()["content-type"], "text/plain");
    assert_eq!(answer.headers()["content-disposition"], disposition);
    assert_eq!(answer.bytes().await.unwrap(), "bucket");
    let altered = url.replace("text%2Fplain", "text%2Fhtml");
    assert_ne!(altered, url);
    assert_eq!(client().get(altered).send().await.unwrap().status(), 403);
    let brief = Duration::from_secs(1);
    let url = objects.sign_get("attachments/00/a", "text/plain", disposition, brief).await.unwrap();
    tokio::time::sleep(Duration::from_millis(2100)).await;
    assert_eq!(client().get(&url).send().await.unwrap().status(), 403, "expired");
}

#[tokio::test]
async fn an_upload_in_parts_is_put_together_and_can_be_let_go() {
    let objects = bucket().await;
    let long: Vec<u8> = (0..5 * 1024 * 1024 + 17).map(|n| (n % 251) as u8).collect();
    let parts: Vec<&[u8]> = long.chunks(5 * 1024 * 1024).collect();
    let sums: Vec<String> = parts.iter().map(|part| sha256(part)).collect();
    let key = "attachments/00/long";
    let upload_id = objects.begin_parts(key, "video/mp4").await.unwrap();
    let mut etags = Vec::new();
    for (number, (part, sum)) in (1..).zip(parts.iter().zip(&sums)) {
        let terms = UploadTerms { bytes: part.len() as u64, sha256: sum, expires: HOUR };
        let put = objects.sign_part(key, &upload_id, number, &terms).await.unwrap();
        assert_eq!(make(&put, &[&part[1..], b"x"].concat(), &[]).await.status(), 400, "other bytes");
        let answer = make(&put, part, &[]).await;
        assert_eq!(answer.status(), 200);
        etags.push(answer.headers()["etag"].to_str().unwrap().to_owned());
    }
    fn both<'a>(etags: &'a [String], sums: &'a [String]) -> impl Iterator<Item = (&'a str, &'a str)> {
        etags.iter().zip(sums).map(|(etag, sum)| (etag.as_str(), sum.as_str()))
    }
    let wrong = vec!["\"00000000000000000000000000000000\"".to_owned(); 2];
    assert!(!objects.complete_parts(key, &upload_id, both(&wrong, &sums)).await.unwrap());
    assert!(objects.complete_parts(key, &upload_id, both(&etags, &sums)).await.unwrap());
    assert_eq!(objects.info(key).await.unwrap().unwrap().bytes, long.len() as u64);
    let url = objects.sign_get(key, "video/mp4", "inline", HOUR).await.unwrap();
    assert!(client().get(&url).send().await.unwrap().bytes().await.unwrap() == long);
    // Whether a second try is answered like the first, or that there is no such upload any more, is
    // the bucket's affair.
    let _ = objects.complete_parts(key, &upload_id, both(&etags, &sums)).await;
    assert_eq!(objects.info(key).await.unwrap().unwrap().bytes, long.len() as u64);

    let given_up = objects.begin_parts("attachments/00/x", "video/mp4").await.unwrap();
    objects.abort_parts("attachments/00/x", &given_up).await.unwrap();
    objects.abort_parts("attachments/00/x", &given_up).await.unwrap();
    let unknown = objects.complete_parts("attachments/00/x", &given_up, both(&etags, &sums)).await;
    assert!(matches!(unknown, Err(StoreError::Unavailable { .. })), "{unknown:?}");
}
