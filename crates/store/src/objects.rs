//! The object store, for bytes that are written once and never change: cold messages and
//! attachments. A directory by default; S3 or a compatible server for many machines.

mod copy;
mod files;
mod sign;

use std::{fmt, ops::Range, path::Path as FilePath, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use object_store::{
    Error, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey},
    local::LocalFileSystem,
    path::Path,
    signer::Url,
};

pub use files::NewObject;
pub use sign::UploadTerms;

use crate::{Result, StoreError};

/// Few retries: an unreachable bucket is reported soon, and the caller retries.
const MOST_RETRIES: usize = 3;
const RETRIES_END: Duration = Duration::from_secs(10);

/// The bucket, and how to reach it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct S3Config {
    pub bucket: String,
    /// The prefix of every key, if the bucket is shared.
    pub prefix: String,
    pub region: Option<String>,
    /// An endpoint other than Amazon's.
    pub endpoint: Option<String>,
    /// Address the bucket in the path instead of the host name, as most servers other than Amazon's
    /// require.
    pub path_style: bool,
    /// `None` if the environment, the machine or the container provides the credentials.
    pub access_key_id: Option<String>,
    pub secret_access_key: Option<String>,
}

/// The address of a bucket by host name. `None` if the endpoint is an IP address.
fn under_bucket(endpoint: &str, bucket: &str) -> Option<String> {
    let mut url: Url = endpoint.parse().ok()?;
    let host = url.domain()?;
    let host = format!("{bucket}.{host}");
    url.set_host(Some(&host)).ok()?;
    Some(url.as_str().trim_end_matches('/').to_owned())
}

/// An object's metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectInfo {
    pub key: String,
    pub bytes: u64,
    /// When it was written, in ms since 1970, by the store's clock.
    pub written_at: u64,
}

/// Cheap to clone.
#[derive(Clone)]
pub struct Objects {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) s3: Option<Arc<object_store::aws::AmazonS3>>,
    /// The same bucket, for multipart uploads with checksums.
    s3_checked: Option<Arc<object_store::aws::AmazonS3>>,
    /// The directory, if it is one.
    dir: Option<std::path::PathBuf>,
    prefix: String,
    /// Its name in logs and errors.
    place: String,
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Objects({})", self.place)
    }
}

impl Objects {
    /// A directory, created if there is none. A write is durable when it returns.
    pub fn directory(dir: &FilePath) -> Result<Objects> {
        let unusable =
            |why: String| StoreError::Unusable(format!("cannot use {} for objects: {why}", dir.display()));
        std::fs::create_dir_all(dir).map_err(|e| unusable(e.to_string()))?;
        let store = LocalFileSystem::new_with_prefix(dir).map_err(|e| unusable(e.to_string()))?;
        Ok(Objects {
            store: Arc::new(store.with_fsync(true).with_automatic_cleanup(true)),
            s3: None,
            s3_checked: None,
            dir: Some(dir.to_owned()),
            prefix: String::new(),
            place: dir.display().to_string(),
        })
    }

    /// A bucket. It is not contacted before the first use.
    pub fn s3(config: &S3Config) -> Result<Objects> {
        // Its HTTP client uses the process's TLS provider; the first call sets it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let unusable = |e: &dyn fmt::Display| {
            StoreError::Unusable(format!("cannot use the bucket {} for objects: {e}", config.bucket))
        };
        let surroundings = AmazonS3Builder::from_env();
        let around = |key| surroundings.get_config_value(&key);
        let region = config.region.clone().or_else(|| around(AmazonS3ConfigKey::Region));
        let endpoint = config.endpoint.clone();
        let endpoint = endpoint.or_else(|| around(AmazonS3ConfigKey::S3Endpoint));
        let endpoint = endpoint.or_else(|| around(AmazonS3ConfigKey::Endpoint));
        let mut builder = match (&config.access_key_id, &config.secret_access_key) {
            // A session token in the environment belongs to other keys.
            (Some(id), Some(secret)) => {
                AmazonS3Builder::new().with_access_key_id(id).with_secret_access_key(secret)
            }
            _ => surroundings,
        };
        builder = builder
            .with_bucket_name(&config.bucket)
            .with_virtual_hosted_style_request(!config.path_style)
            .with_retry(RetryConfig {
                max_retries: MOST_RETRIES,
                retry_timeout: RETRIES_END,
                ..Default::default()
            });
        if let Some(region) = region {
            builder = builder.with_region(region);
        }
        if let Some(endpoint) = endpoint {
            let address = match config.path_style {
                true => endpoint,
                false => under_bucket(&endpoint, &config.bucket).ok_or_else(|| {
                    unusable(&format!("{endpoint} has no name to put the bucket in front of; set path_style"))
                })?,
            };
            // This one of the two counts.
            builder = builder
                .with_allow_http(address.starts_with("http://"))
                .with_config(AmazonS3ConfigKey::S3Endpoint, address);
        }
        let checked = builder.clone().with_checksum_algorithm(object_store::aws::Checksum::SHA256);
        let checked = Arc::new(checked.build().map_err(|e| unusable(&e))?);
        let s3 = Arc::new(builder.build().map_err(|e| unusable(&e))?);
        Ok(Objects {
            store: s3.clone(),
            s3: Some(s3),
            s3_checked: Some(checked),
            dir: None,
            prefix: config.prefix.clone(),
            place: format!("s3://{}/{}", config.bucket, config.prefix),
        })
    }

    /// In memory, for tests and simulation.
    #[cfg(feature = "testing")]
    pub fn memory() -> Objects {
        let store = Arc::new(object_store::memory::InMemory::new());
        Objects {
            store,
            s3: None,
            s3_checked: None,
            dir: None,
            prefix: String::new(),
            place: "memory".into(),
        }
    }

    /// What an operator calls it.
    pub fn place(&self) -> &str {
        &self.place
    }

    pub(crate) fn path(&self, key: &str) -> Path {
        Path::from_iter([self.prefix.as_str(), key].into_iter().flat_map(|part| part.split('/')))
    }

    /// Writes an object under a free key. Returns false if the key is taken.
    pub async fn put_new(&self, key: &str, bytes: Bytes) -> Result<bool> {
        let options = PutOptions::from(PutMode::Create);
        match self.store.put_opts(&self.path(key), bytes.into(), options).await {
            Ok(_) => Ok(true),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(false),
            Err(e) => Err(self.failed("write", key, e)),
        }
    }

    /// A range of an object; `None` if there is no object.
    pub async fn read(&self, key: &str, range: Range<u64>) -> Result<Option<Bytes>> {
        match self.store.get_range(&self.path(key), range).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(e) => Err(self.failed("read", key, e)),
        }
    }

    /// The length of an object; `None` if there is none.
    pub async fn info(&self, key: &str) -> Result<Option<ObjectInfo>> {
        match self.store.head(&self.path(key)).await {
            Ok(meta) => Ok(Some(self.describe(&meta))),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(e) => Err(self.failed("look at", key, e)),
        }
    }

    /// Deletes an object. Idempotent.
    pub async fn delete(&self, key: &str) -> Result<()> {
        match self.store.delete(&self.path(key)).await {
            Ok(()) => self.sync_above(key).await,
            Err(Error::NotFound { .. }) => Ok(()),
            Err(e) => Err(self.failed("delete", key, e)),
        }
    }

    /// The objects under a folder.
    pub async fn list(&self, under: &str) -> Result<Vec<ObjectInfo>> {
        let listed: Vec<_> = self
            .store
            .list(Some(&self.path(under)))
            .try_collect()
            .await
            .map_err(|e| self.failed("list", under, e))?;
        Ok(listed.iter().map(|meta| self.describe(meta)).collect())
    }

    fn describe(&self, meta: &object_store::ObjectMeta) -> ObjectInfo {
        let key = meta.location.as_ref();
        let key = key.strip_prefix(self.prefix.as_str()).unwrap_or(key).trim_start_matches('/');
        ObjectInfo {
            key: key.to_owned(),
            bytes: meta.size,
            written_at: meta.last_modified.timestamp_millis().max(0) as u64,
        }
    }

    pub(crate) fn failed(&self, what: &str, key: &str, error: Error) -> StoreError {
        tracing::warn!(%key, place = %self.place, %error, "the object store failed to {what}");
        StoreError::unavailable(format!("the object store {} (to {what} {key}: {error})", self.place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_stands_in_front_of_a_host_that_has_a_name() {
        for (endpoint, expected) in [
            ("https://s3.example.org", Some("https://photos.s3.example.org")),
            ("http://s3.example.org:9000/", Some("http://photos.s3.example.org:9000")),
            ("https://127.0.0.1:9000", None),
            ("http://[::1]:9000", None),
            ("s3", None),
        ] {
            assert_eq!(under_bucket(endpoint, "photos").as_deref(), expected, "{endpoint}");
        }
    }

    #[tokio::test]
    async fn a_signed_address_names_the_bucket() {
        let address = async |path_style| {
            let objects = Objects::s3(&S3Config {
                bucket: "photos".into(),
                endpoint: Some("https://s3.example.org".into()),
                path_style,
                access_key_id: Some("id".into()),
                secret_access_key: Some("secret".into()),
                ..S3Config::default()
            });
            let url = objects.unwrap().sign_get("a", "text/plain", "inline", Duration::from_secs(1)).await;
            url.unwrap().split('?').next().unwrap().to_owned()
        };
        assert_eq!(address(false).await, "https://photos.s3.example.org/a");
        assert_eq!(address(true).await, "https://s3.example.org/photos/a");
    }
}
