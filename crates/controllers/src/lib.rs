//! The controllers: one module per controller, each a row and a pure `plan()`.
//!
//! A plan is decided from what the informers hold and from nothing else; it reads no clock, does no I/O and goes
//! through things in a fixed order. The engine (`controller`) carries plans out. No controller knows another:
//! they meet in the API only.

mod claim;
mod history;
mod int_or_percent;
mod kinds;
pub mod metrics;
mod names;
pub mod options;
mod pod;
mod pod_control;
mod scale;
mod selection;
mod service_pods;
mod transform;

pub mod deployment;
pub mod replica_set;
pub mod replication_controller;
pub mod stateful_set;

pub mod autoscaler;
pub mod cron_job;
pub mod daemon_set;

pub mod job;
pub mod ttl_after_finished;

pub mod endpoint_slice;
pub mod endpoint_slice_mirroring;
pub mod endpoints;

pub mod bootstrap;
pub mod certificates;
pub mod cluster_role;
pub mod device_taint_eviction;
pub mod disruption;
pub mod garbage_collector;
pub mod legacy_token_cleaner;
pub mod namespace;
pub mod node_ipam;
pub mod node_lifecycle;
pub mod node_ttl;
pub mod pod_gc;
pub mod resource_claim;
pub mod resource_quota;
pub mod root_ca;
pub mod service_account;
pub mod service_cidr;
pub mod service_lb;
pub mod storage_version_gc;
pub mod storage_version_migrator;
pub mod taint_eviction;
pub mod token;
pub mod trust_bundle;
pub mod volume;

#[cfg(test)]
mod fixture;

use controller::Controller;
use machinery::features::Feature;

pub use selection::Selection;
pub use transform::set_transforms;

/// Every controller that may run: also those that somebody has to name.
pub fn known() -> impl Iterator<Item = &'static Controller> {
    let on = GATED.iter().filter(|(feature, _)| feature.is_on());
    ALWAYS.iter().chain(on.map(|(_, controller)| controller)).chain(NAMED)
}

/// Every controller, whichever features are on.
pub fn every() -> impl Iterator<Item = &'static Controller> {
    ALWAYS.iter().chain(GATED.iter().map(|(_, controller)| controller)).chain(NAMED)
}

fn off_by_default(controller: &Controller) -> bool {
    NAMED.iter().any(|named| named.name == controller.name)
}

const ALWAYS: &[Controller] = &[
    deployment::CONTROLLER,
    replica_set::CONTROLLER,
    replication_controller::CONTROLLER,
    stateful_set::CONTROLLER,
    daemon_set::CONTROLLER,
    job::CONTROLLER,
    job::ORPHANS,
    ttl_after_finished::CONTROLLER,
    cron_job::CONTROLLER,
    autoscaler::CONTROLLER,
    endpoint_slice::CONTROLLER,
    endpoint_slice_mirroring::CONTROLLER,
    endpoints::CONTROLLER,
    service_account::CONTROLLER,
    token::CONTROLLER,
    legacy_token_cleaner::CONTROLLER,
    root_ca::CONTROLLER,
    certificates::approving::CONTROLLER,
    certificates::serving::CONTROLLER,
    certificates::signing::CONTROLLER,
    certificates::cleaner::CONTROLLER,
    garbage_collector::CONTROLLER,
    namespace::CONTROLLER,
    node_ipam::CONTROLLER,
    node_lifecycle::CONTROLLER,
    node_ttl::CONTROLLER,
    taint_eviction::CONTROLLER,
    pod_gc::CONTROLLER,
    cluster_role::CONTROLLER,
    resource_quota::CONTROLLER,
    disruption::CONTROLLER,
    disruption::stale::CONTROLLER,
    service_cidr::CONTROLLER,
    service_lb::CONTROLLER,
    volume::binder::CONTROLLER,
    volume::protection::CLAIMS,
    volume::protection::VOLUMES,
    volume::attributes_protection::CONTROLLER,
    volume::ephemeral::CONTROLLER,
    volume::attachment::CONTROLLER,
    volume::expansion::CONTROLLER,
    volume::hostpath::CONTROLLER,
    volume::hostpath::capacity::CONTROLLER,
    resource_claim::CONTROLLER,
];
const GATED: &[(Feature, Controller)] = &[
    (Feature::ClusterTrustBundle, trust_bundle::CONTROLLER),
    (Feature::PodCertificateRequest, certificates::pod_cleaner::CONTROLLER),
    (Feature::StorageVersionApi, storage_version_gc::CONTROLLER),
    (Feature::StorageVersionMigrator, storage_version_migrator::CONTROLLER),
    (Feature::DraDeviceTaints, device_taint_eviction::CONTROLLER),
];

/// Those that run where somebody names them. Source: `ControllersDisabledByDefault`.
const NAMED: &[Controller] = &[
    bootstrap::signer::CONTROLLER,
    bootstrap::token_cleaner::CONTROLLER,
    volume::selinux_warning::CONTROLLER,
];

#[cfg(test)]
mod tests {
    use controller::record::component_of;
    use expect_test::expect;

    /// Who speaks under another name than its own. Source: the `EventSource` of each in `pkg/controller` of v1.35.
    #[test]
    fn events_come_from_those_whom_upstreams_come_from() {
        let others = super::every().filter(|row| component_of(row.name) != row.name);
        let told: String = others.map(|row| format!("{}: {}\n", row.name, component_of(row.name))).collect();
        expect![[r#"
            replicationcontroller-controller: replication-controller
            daemon-set-controller: daemonset-controller
            horizontal-pod-autoscaler-controller: horizontal-pod-autoscaler
            endpointslice-controller: endpoint-slice-controller
            endpointslice-mirroring-controller: endpoint-slice-mirroring-controller
            endpoints-controller: endpoint-controller
            node-ipam-controller: cidrAllocator
            node-lifecycle-controller: node-controller
            disruption-controller: controllermanager
            disruption-controller: controllermanager
            persistentvolume-binder-controller: persistentvolume-controller
            ephemeral-volume-controller: ephemeral_volume
            persistentvolume-attach-detach-controller: attachdetach-controller
            persistentvolume-expander-controller: volume_expand
            resource-claim-controller: resource_claim
            selinux-warning-controller: selinux_warning
        "#]]
        .assert_eq(&told);
    }
}
