//! The operators' options for the controllers: a field per flag of kube-controller-manager that a controller acts upon,
//! under the flag's name. Whoever starts controllers makes it a setting of their informers; without one the defaults
//! count.
//!
//! Source: `pkg/controller/*/config/v1alpha1/defaults.go` of v1.35.

use std::sync::Arc;
use std::time::Duration;

use controller::Informers;
use jiff::SignedDuration;
use machinery::duration::GoDuration;
use serde::{Deserialize, Serialize};

/// The flags' values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[expect(missing_docs, reason = "each is described where the flag of its name is")]
pub struct Options {
    pub max_endpoints_per_slice: usize,
    pub mirroring_max_endpoints_per_subset: usize,
    pub enable_garbage_collector: bool,
    pub resource_quota_sync_period: GoDuration,
    pub horizontal_pod_autoscaler_sync_period: GoDuration,
    pub horizontal_pod_autoscaler_downscale_stabilization: GoDuration,
    pub horizontal_pod_autoscaler_tolerance: f64,
    pub horizontal_pod_autoscaler_cpu_initialization_period: GoDuration,
    pub horizontal_pod_autoscaler_initial_readiness_delay: GoDuration,
    pub node_monitor_grace_period: GoDuration,
    pub node_startup_grace_period: GoDuration,
    pub node_eviction_rate: f64,
    pub secondary_node_eviction_rate: f64,
    pub large_cluster_size_threshold: usize,
    pub unhealthy_zone_threshold: f64,
    pub terminated_pod_gc_threshold: usize,
    pub node_cidr_mask_size_ipv4: u8,
    pub node_cidr_mask_size_ipv6: u8,
    pub cluster_signing_duration: GoDuration,
    pub legacy_service_account_token_clean_up_period: GoDuration,
    pub enable_dynamic_provisioning: bool,
    pub disable_force_detach_on_timeout: bool,
    pub controller_start_interval: GoDuration,
}

const fn seconds(seconds: u64) -> GoDuration {
    GoDuration(Duration::from_secs(seconds))
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_endpoints_per_slice: 100,
            mirroring_max_endpoints_per_subset: 1_000,
            enable_garbage_collector: true,
            resource_quota_sync_period: seconds(300),
            horizontal_pod_autoscaler_sync_period: seconds(15),
            horizontal_pod_autoscaler_downscale_stabilization: seconds(300),
            horizontal_pod_autoscaler_tolerance: 0.1,
            horizontal_pod_autoscaler_cpu_initialization_period: seconds(300),
            horizontal_pod_autoscaler_initial_readiness_delay: seconds(30),
            node_monitor_grace_period: seconds(50),
            node_startup_grace_period: seconds(60),
            node_eviction_rate: 0.1,
            secondary_node_eviction_rate: 0.01,
            large_cluster_size_threshold: 50,
            unhealthy_zone_threshold: 0.55,
            terminated_pod_gc_threshold: 12_500,
            node_cidr_mask_size_ipv4: 24,
            node_cidr_mask_size_ipv6: 64,
            cluster_signing_duration: seconds(365 * 24 * 3600),
            legacy_service_account_token_clean_up_period: seconds(365 * 24 * 3600),
            enable_dynamic_provisioning: true,
            disable_force_detach_on_timeout: false,
            controller_start_interval: seconds(0),
        }
    }
}

impl Options {
    /// The options that count for the controllers on these informers.
    pub fn of(informers: &Informers) -> Arc<Self> {
        informers.setting_or(Self::default)
    }
}

/// As times are counted with.
pub(crate) fn signed(duration: GoDuration) -> SignedDuration {
    SignedDuration::try_from(duration.0).unwrap_or(SignedDuration::MAX)
}
