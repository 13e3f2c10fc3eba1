//! Images as CRI has them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use cri::{CriError, CriResult, ImageService, v1};
use registry::Credentials;

use crate::images::pull::PullError;
use crate::images::{Image, ImageError};
use crate::state::{Runtime, blocking, internal, sandboxes_dir};

/// What the message of an error begins with when no registry answers. Source: `k8s.io/cri-api/pkg/errors`.
const REGISTRY_UNAVAILABLE: &str = "RegistryUnavailable";

#[async_trait]
impl ImageService for Runtime {
    async fn list_images(&self, request: v1::ListImagesRequest) -> CriResult<v1::ListImagesResponse> {
        let wanted =
            request.filter.and_then(|filter| filter.image).map(|image| image.image).unwrap_or_default();
        let images = match wanted.as_str() {
            "" => self.0.images.list(),
            name => self.0.images.find(name).into_iter().collect(),
        };
        Ok(v1::ListImagesResponse { images: images.iter().map(image).collect() })
    }

    async fn image_status(&self, request: v1::ImageStatusRequest) -> CriResult<v1::ImageStatusResponse> {
        let name = request.image.map(|image| image.image).unwrap_or_default();
        let found = self.0.images.find(&name);
        let mut info = match found.as_ref().filter(|_| request.verbose) {
            Some(found) => crate::verbose::image_info(found),
            None => HashMap::new(),
        };
        let image = found.as_ref().map(image);
        if let Some(progress) = self.0.puller.progress(&name).filter(|_| request.verbose) {
            let progress = serde_json::json!({
                "layers": progress.layers, "layersDone": progress.layers_done,
                "bytes": progress.bytes, "bytesDone": progress.bytes_done,
            });
            info.insert(cri::annotations::PULL_PROGRESS.to_owned(), progress.to_string());
        }
        Ok(v1::ImageStatusResponse { image, info })
    }

    async fn pull_image(&self, request: v1::PullImageRequest) -> CriResult<v1::PullImageResponse> {
        let name = request.image.map(|image| image.image).unwrap_or_default();
        let credentials = credentials(&name, request.auth.unwrap_or_default())?;
        match self.0.puller.pull(&name, credentials, |_| {}).await {
            Ok(image) => Ok(v1::PullImageResponse { image_ref: image.id }),
            Err(error) => Err(pull_error(&error)),
        }
    }

    async fn remove_image(&self, request: v1::RemoveImageRequest) -> CriResult<v1::RemoveImageResponse> {
        let name = request.image.map(|image| image.image).unwrap_or_default();
        let this = Arc::clone(&self.0);
        blocking(move || {
            this.images.drop_downloads();
            this.images.remove(&name, &this.layers_in_use()).map_err(|error: ImageError| internal(error))
        })
        .await?;
        Ok(v1::RemoveImageResponse {})
    }

    async fn image_fs_info(&self, _: v1::ImageFsInfoRequest) -> CriResult<v1::ImageFsInfoResponse> {
        let this = Arc::clone(&self.0);
        let look = move || Ok((this.images.usage().map_err(internal)?, this.written()));
        let (images, written) = blocking(look).await?;
        let usage = |path: &Path, bytes, inodes: Option<u64>| v1::FilesystemUsage {
            timestamp: self.0.now(),
            fs_id: Some(v1::FilesystemIdentifier { mountpoint: path.to_string_lossy().into_owned() }),
            used_bytes: Some(v1::UInt64Value { value: bytes }),
            inodes_used: inodes.map(|value| v1::UInt64Value { value }),
        };
        let layers = usage(self.0.images.root(), images.bytes, Some(images.inodes));
        let containers = sandboxes_dir(&self.0.config.data_dir);
        Ok(v1::ImageFsInfoResponse {
            image_filesystems: vec![layers],
            container_filesystems: vec![usage(&containers, written.bytes, Some(written.inodes))],
        })
    }
}

/// Who the caller says we are to the registry of `name`.
fn credentials(name: &str, auth: v1::AuthConfig) -> CriResult<Option<Credentials>> {
    let reference = name.parse::<registry::Reference>();
    let registry = reference.as_ref().map(|it| it.registry.as_str()).unwrap_or_default();
    let server = auth.server_address.split_once("://").map_or(auth.server_address.as_str(), |(_, rest)| rest);
    let server = server.split('/').next().unwrap_or_default();
    let is_hub = |host: &str| matches!(host, "docker.io" | "index.docker.io" | "registry-1.docker.io");
    if !server.is_empty() && server != registry && !(is_hub(server) && is_hub(registry)) {
        return Ok(None);
    }
    let made = Credentials::from_parts(
        &auth.username,
        &auth.password,
        &auth.auth,
        &auth.identity_token,
        &auth.registry_token,
    );
    made.map_err(|error| CriError::InvalidArgument(format!("auth: {error}")))
}

fn pull_error(error: &PullError) -> CriError {
    let text = base::error_chain(error);
    match error {
        PullError::Name(..) => CriError::InvalidArgument(text),
        error if error.is_not_found() => CriError::NotFound(text),
        error if error.is_unavailable() => CriError::Internal(format!("{REGISTRY_UNAVAILABLE}: {text}")),
        _ => CriError::Internal(text),
    }
}

fn image(image: &Image) -> v1::Image {
    let user = image.config.user.split(':').next().unwrap_or_default();
    let uid =
        user.parse().ok().filter(|_| crate::users::is_number(user)).map(|value| v1::Int64Value { value });
    v1::Image {
        id: image.id.clone(),
        repo_tags: image.names.iter().filter(|name| !name.contains('@')).cloned().collect(),
        repo_digests: image.names.iter().filter(|name| name.contains('@')).cloned().collect(),
        size: image.size_bytes,
        username: if uid.is_none() { user.to_owned() } else { String::new() },
        uid,
        spec: None,
        pinned: image.is_pinned,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_for_another_registry_are_not_used() {
        let has = |name: &str, server: &str| {
            let auth = v1::AuthConfig {
                username: "u".into(),
                password: "p".into(),
                server_address: server.into(),
                ..Default::default()
            };
            credentials(name, auth).unwrap().is_some()
        };
        for (name, server, expect) in [
            ("r.example/x", "", true),
            ("r.example/x", "r.example", true),
            ("r.example/x", "https://r.example/v1/", true),
            ("r.example/x", "other.example", false),
            ("x", "https://index.docker.io/v1/", true),
            ("r.example/x", "https://index.docker.io/v1/", false),
        ] {
            assert_eq!(has(name, server), expect, "{name} {server}");
        }
    }
}
