//! Where objects are kept: what is cold, and the bytes of attachments.

use std::path::PathBuf;

use bluetick_store::{ColdConfig, ColdObjects, EmbeddedConfig, Objects as ObjectStore, S3Config};
use serde::Deserialize;

use super::{Backend, Config, Secret};

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectSettings {
    pub dir: Option<PathBuf>,
    pub s3_bucket: Option<String>,
    pub s3_prefix: String,
    pub s3_region: Option<String>,
    pub s3_endpoint: Option<String>,
    pub s3_path_style: bool,
    pub s3_access_key_id: Option<Secret>,
    pub s3_secret_access_key: Option<Secret>,
}

impl Config {
    /// The bucket, or else the directory; nothing where several processes have neither in common.
    pub fn object_store(&self) -> bluetick_store::Result<Option<ObjectStore>> {
        match (self.bucket()?, self.store.backend) {
            (Some(bucket), _) => Ok(Some(bucket)),
            (None, Backend::Embedded) => ObjectStore::directory(&self.objects_dir()).map(Some),
            (None, Backend::Dynamodb) => Ok(None),
        }
    }

    /// The bucket, if there is one.
    pub fn bucket(&self) -> bluetick_store::Result<Option<ObjectStore>> {
        let objects = &self.objects;
        let exposed = |secret: &Option<Secret>| secret.as_ref().map(|secret| secret.expose().to_owned());
        let Some(bucket) = &objects.s3_bucket else { return Ok(None) };
        ObjectStore::s3(&S3Config {
            bucket: bucket.clone(),
            prefix: objects.s3_prefix.trim_matches('/').to_owned(),
            region: objects.s3_region.clone(),
            endpoint: objects.s3_endpoint.clone(),
            path_style: objects.s3_path_style,
            access_key_id: exposed(&objects.s3_access_key_id),
            secret_access_key: exposed(&objects.s3_secret_access_key),
        })
        .map(Some)
    }

    pub fn objects_dir(&self) -> PathBuf {
        self.objects.dir.clone().unwrap_or_else(|| self.server.data_dir.join("objects"))
    }

    /// The object store as the cold tier uses it.
    pub fn cold_objects(&self) -> bluetick_store::Result<Option<ColdObjects>> {
        Ok(self.object_store()?.map(|objects| self.cold_in(objects)))
    }

    /// Any object store, used as the cold tier's.
    pub fn cold_in(&self, objects: ObjectStore) -> ColdObjects {
        ColdObjects::new(objects, ColdConfig { cache_bytes: self.cold.cache_bytes })
    }

    /// The embedded store with its objects. The directory for them is made if there is none.
    pub fn embedded_store_with_objects(&self) -> bluetick_store::Result<EmbeddedConfig> {
        let objects = self.cold_objects()?.map(Into::into);
        Ok(EmbeddedConfig { objects, ..self.embedded_store() })
    }

    #[cfg(feature = "cluster")]
    pub fn distributed_store_with_objects(
        &self,
    ) -> bluetick_store::Result<bluetick_store::DistributedConfig> {
        let objects = self.cold_objects()?.map(Into::into);
        let cold_after = self.cold.enabled.then(|| self.mover().after);
        Ok(bluetick_store::DistributedConfig { objects, cold_after, ..self.distributed_store() })
    }
}
