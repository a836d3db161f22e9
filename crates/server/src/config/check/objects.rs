//! Whether the settings of the object store fit together.

use super::{Config, ConfigError, wrong};
use crate::config::Backend;

/// Whether the host of a URL is an address by number.
fn is_number(url: &str) -> bool {
    url.parse::<reqwest::Url>().is_ok_and(|url| url.host().is_some() && url.domain().is_none())
}

impl Config {
    pub(super) fn check_objects(&self) -> Result<(), ConfigError> {
        let objects = &self.objects;
        if objects.dir.is_some() && objects.s3_bucket.is_some() {
            return wrong("objects: set only one of dir and s3_bucket");
        }
        if objects.dir.is_some() && self.store.backend == Backend::Dynamodb {
            return wrong(
                "objects.dir is a directory of one machine, and with store.backend = \"dynamodb\" several share \
                 what is in it; set objects.s3_bucket",
            );
        }
        let s3 = [
            ("s3_region", objects.s3_region.is_some()),
            ("s3_endpoint", objects.s3_endpoint.is_some()),
            ("s3_path_style", objects.s3_path_style),
            ("s3_access_key_id", objects.s3_access_key_id.is_some()),
            ("s3_secret_access_key", objects.s3_secret_access_key.is_some()),
            ("s3_prefix", !objects.s3_prefix.is_empty()),
        ];
        if objects.s3_bucket.is_none()
            && let Some((key, _)) = s3.iter().find(|(_, set)| *set)
        {
            return wrong(format!("objects.{key} is set and objects.s3_bucket is not; name the bucket"));
        }
        if objects.s3_bucket.as_ref().is_some_and(|bucket| bucket.trim().is_empty() || bucket.contains('/')) {
            return wrong("objects.s3_bucket must be the name of a bucket, without s3:// and without a path");
        }
        if objects.s3_access_key_id.is_some() != objects.s3_secret_access_key.is_some() {
            return wrong("objects: set both s3_access_key_id and s3_secret_access_key, or neither");
        }
        let is_url = |url: &String| url.starts_with("https://") || url.starts_with("http://");
        if objects.s3_endpoint.as_ref().is_some_and(|endpoint| !is_url(endpoint)) {
            return wrong("objects.s3_endpoint must begin with https:// or http://");
        }
        if objects.s3_endpoint.as_ref().is_some_and(|endpoint| !objects.s3_path_style && is_number(endpoint))
        {
            return wrong(
                "objects.s3_endpoint has a number for a host, and no bucket's name can stand in front of it; set \
                 objects.s3_path_style = true",
            );
        }
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._/".contains(&b);
        let prefix = objects.s3_prefix.trim_matches('/');
        if !objects.s3_prefix.bytes().all(plain)
            || prefix.split('/').any(|part| part.is_empty()) && !prefix.is_empty()
        {
            return wrong("objects.s3_prefix may have letters, digits and - . _, and / between its parts");
        }
        Ok(())
    }

    pub(super) fn check_attachments(&self) -> Result<(), ConfigError> {
        let is_type = |text: &String| {
            let word = |part: &str| {
                !part.is_empty()
                    && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&b))
            };
            text.split_once('/').is_some_and(|(kind, sub)| word(kind) && (sub == "*" || word(sub)))
        };
        if let Some(text) = self.attachments.types.iter().find(|text| !is_type(text)) {
            return wrong(format!(
                "attachments.types: {text:?} is not a media type; write image/jpeg, or image/* for all of a kind"
            ));
        }
        self.check_uploads()?;
        let is_url = |url: &String| url.starts_with("https://") || url.starts_with("http://");
        match &self.attachments.public_url {
            Some(url) if !is_url(url) || url.contains(['?', '#', ' ']) => wrong(
                "attachments.public_url must be an address such as https://chat.example, without ? and #",
            ),
            _ => Ok(()),
        }
    }

    /// Whether the limits of uploads leave room for an upload, and for messages.
    fn check_uploads(&self) -> Result<(), ConfigError> {
        let attachments = &self.attachments;
        if !attachments.enabled {
            return Ok(());
        }
        for (key, quota) in [
            ("user_bytes_per_day", attachments.user_bytes_per_day),
            ("user_bytes_total", attachments.user_bytes_total),
        ] {
            if quota > 0 && quota < attachments.max_bytes {
                return wrong(format!(
                    "attachments.max_bytes is {}, and attachments.{key} = {quota} lets nobody upload a file of that \
                     length; lower the first or raise the second",
                    attachments.max_bytes
                ));
            }
        }
        if attachments.uploads_at_once < attachments.uploads_per_user {
            return wrong(format!(
                "attachments.uploads_at_once is {}, and must be at least attachments.uploads_per_user = {}",
                attachments.uploads_at_once, attachments.uploads_per_user
            ));
        }
        let in_a_directory = self.objects.s3_bucket.is_none() && self.store.backend == Backend::Embedded;
        if in_a_directory && attachments.upload_free_space_floor_bytes < self.store.free_space_floor_bytes {
            return wrong(format!(
                "attachments.upload_free_space_floor_bytes is {}, and store.free_space_floor_bytes = {} is more: \
                 uploads could fill the disk until no message is taken; raise the first well above the second",
                attachments.upload_free_space_floor_bytes, self.store.free_space_floor_bytes
            ));
        }
        Ok(())
    }
}
