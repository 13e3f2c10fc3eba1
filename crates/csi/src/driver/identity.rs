//! The driver's name and capabilities.

use async_trait::async_trait;

use super::Driver;
use crate::server::Identity;
use crate::{Result, v1};
use v1::plugin_capability::{self, Service, VolumeExpansion, service, volume_expansion};

#[async_trait]
impl Identity for Driver {
    async fn get_plugin_info(&self, _: v1::GetPluginInfoRequest) -> Result<v1::GetPluginInfoResponse> {
        Ok(v1::GetPluginInfoResponse {
            name: self.name.clone(),
            vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
            ..v1::GetPluginInfoResponse::default()
        })
    }

    async fn get_plugin_capabilities(
        &self,
        _: v1::GetPluginCapabilitiesRequest,
    ) -> Result<v1::GetPluginCapabilitiesResponse> {
        let service = |kind: service::Type| plugin_capability::Type::Service(Service { r#type: kind.into() });
        let online = VolumeExpansion { r#type: volume_expansion::Type::Online.into() };
        let all = [
            service(service::Type::ControllerService),
            service(service::Type::VolumeAccessibilityConstraints),
            plugin_capability::Type::VolumeExpansion(online),
        ];
        let capabilities = all.into_iter().map(|one| v1::PluginCapability { r#type: Some(one) }).collect();
        Ok(v1::GetPluginCapabilitiesResponse { capabilities })
    }

    async fn probe(&self, _: v1::ProbeRequest) -> Result<v1::ProbeResponse> {
        Ok(v1::ProbeResponse { ready: Some(true) })
    }
}
