//! The families of `/metrics`: names, kinds, labels, helps and buckets, each in one row.
//!
//! What upstream has and is not here: what only happens on Windows, what features count that are off by default, and of
//! the lifecycle events' generator what a kubelet has nothing for that is told by the runtime: it lists everything once,
//! so that there is no interval, and keeps the newest of everything for each worker, so that it discards nothing. Nor are
//! there failed renewals of certificates, which are made before a kubelet starts, and plugins for credentials. Records of
//! pulls are on disk alone, so that no cache in memory can be full, and two of the three calls for resources of Pods never fail.
//! Source: `pkg/kubelet/metrics/metrics.go` of v1.35.

/// One family. Helps are without their full stop, which the exposition adds.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) labels: &'static [&'static str],
    pub(super) help: &'static str,
    /// Of a histogram.
    pub(super) buckets: &'static [f64],
}

macro_rules! families {
    ($(#[$doc:meta])* $kind:ident {
        $($variant:ident $name:literal [$($label:literal),*] $help:literal $(in $buckets:expr)?;)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $kind {
            $($variant),*
        }

        impl $kind {
            /// In the order of the variants.
            pub(super) const ALL: &'static [Row] = &[$(Row {
                name: $name,
                labels: &[$($label),*],
                help: $help,
                buckets: { let buckets: &[f64] = &[]; $(let buckets: &[f64] = { let _ = buckets; &$buckets };)? buckets },
            }),*];
        }
    };
}

families! {
    /// What is counted. A name without `_total` is one that upstream has without it.
    Count {
        AdmissionRejections "kubelet_admission_rejections_total" ["reason"] "Cumulative number pod admission rejections by the Kubelet";
        AlignedResources "kubelet_container_aligned_compute_resources_count" ["scope", "boundary"] "Cumulative number of aligned compute resources allocated to containers by alignment type";
        AlignedResourcesFailures "kubelet_container_aligned_compute_resources_failure_count" ["scope", "boundary"] "Cumulative number of failures to allocate aligned compute resources to containers by alignment type";
        CpuPinning "kubelet_cpu_manager_pinning_requests_total" [] "The number of cpu core allocations which required pinning";
        CpuPinningErrors "kubelet_cpu_manager_pinning_errors_total" [] "The number of cpu core allocations which required pinning failed";
        DevicePluginRegistrations "kubelet_device_plugin_registration_total" ["resource_name"] "Cumulative number of device plugin registrations. Broken down by resource name";
        EventConnectionErrors "kubelet_evented_pleg_connection_error_count" [] "The number of errors encountered during the establishment of streaming connection with the CRI runtime";
        EventConnections "kubelet_evented_pleg_connection_success_count" [] "The number of times a streaming client was obtained to receive CRI Events";
        EnsuredImages "kubelet_image_manager_ensure_image_requests_total" ["pull_policy", "present_locally", "pull_required"] "Number of ensure-image requests processed by the kubelet";
        Evictions "kubelet_evictions" ["eviction_signal"] "Cumulative number of pod evictions by eviction signal";
        HookHttpFallbacks "kubelet_lifecycle_handler_http_fallbacks_total" [] "The number of times lifecycle handlers successfully fell back to http from https";
        HookSleepsEnded "kubelet_sleep_action_terminated_early_total" [] "The number of times lifecycle sleep handler got terminated before it finishes";
        HttpRequests "kubelet_http_requests_total" ["method", "path", "server_type", "long_running"] "Number of the http requests received since the server started";
        ImageChecks "kubelet_imagemanager_image_mustpull_checks_total" ["result"] "Counter for how many times kubelet checked whether credentials need to be re-verified to access an image";
        ImageVolumes "kubelet_image_volume_requested_total" [] "Number of requested image volumes";
        ImageVolumesFailed "kubelet_image_volume_mounted_errors_total" [] "Number of failed image volume mounts";
        ImageVolumesMounted "kubelet_image_volume_mounted_succeed_total" [] "Number of successful image volume mounts";
        ImagesCollected "kubelet_image_garbage_collected_total" ["reason"] "Total number of images garbage collected by the kubelet, whether through disk usage or image age";
        MemoryPinning "kubelet_memory_manager_pinning_requests_total" [] "The number of memory pages allocations which required pinning";
        MemoryPinningErrors "kubelet_memory_manager_pinning_errors_total" [] "The number of memory pages allocations which required pinning that failed";
        OrphanedPods "kubelet_orphaned_runtime_pods_total" [] "Number of pods that have been detected in the container runtime without being already known to the pod worker. This typically indicates the kubelet was restarted while a pod was force deleted in the API or in the local configuration, which is unusual";
        PodResources "kubelet_pod_resources_endpoint_requests_total" ["server_api_version"] "Cumulative number of requests to the PodResource endpoint. Broken down by server api version";
        PodResourcesAllocatable "kubelet_pod_resources_endpoint_requests_get_allocatable" ["server_api_version"] "Number of requests to the PodResource GetAllocatableResources endpoint. Broken down by server api version";
        PodResourcesGet "kubelet_pod_resources_endpoint_requests_get" ["server_api_version"] "Number of requests to the PodResource Get endpoint. Broken down by server api version";
        PodResourcesGetErrors "kubelet_pod_resources_endpoint_errors_get" ["server_api_version"] "Number of requests to the PodResource Get endpoint which returned error. Broken down by server api version";
        PodResourcesList "kubelet_pod_resources_endpoint_requests_list" ["server_api_version"] "Number of requests to the PodResource List endpoint. Broken down by server api version";
        Preemptions "kubelet_preemptions" ["preemption_signal"] "Cumulative number of pod preemptions by preemption resource";
        ResizesDeferredAccepted "kubelet_pod_deferred_accepted_resizes_total" ["retry_trigger"] "Cumulative number of resizes that were accepted after being deferred";
        ResizesInfeasible "kubelet_pod_infeasible_resizes_total" ["reason_detail"] "Number of infeasible resizes for pods";
        ResizesRequested "kubelet_container_requested_resizes_total" ["resource", "requirement", "operation"] "Number of requested resizes, counted at the container level. Different resources on the same container are counted separately. The 'requirement' label refers to 'memory' or 'limits'; the 'operation' label can be one of 'add', 'remove', 'increase' or 'decrease'";
        RestartedPods "kubelet_restarted_pods_total" ["static"] "Number of pods that have been restarted because they were deleted and recreated with the same UID while the kubelet was watching them (common for static pods, extremely uncommon for API pods)";
        RuntimeOperations "kubelet_runtime_operations_total" ["operation_type"] "Cumulative number of runtime operations by operation type";
        RuntimeOperationsErrors "kubelet_runtime_operations_errors_total" ["operation_type"] "Cumulative number of runtime operation errors by operation type";
        SandboxErrors "kubelet_run_podsandbox_errors_total" ["runtime_handler"] "Cumulative number of the run_podsandbox operation errors by RuntimeClass.Handler";
        StartedContainers "kubelet_started_containers_total" ["container_type"] "Cumulative number of containers started";
        StartedContainersErrors "kubelet_started_containers_errors_total" ["container_type", "code"] "Cumulative number of errors when starting containers";
        StartedPods "kubelet_started_pods_total" [] "Cumulative number of pods started";
        StartedPodsErrors "kubelet_started_pods_errors_total" [] "Cumulative number of errors when starting pods";
        StartedUserPods "kubelet_started_user_namespaced_pods_total" [] "Cumulative number of pods with user namespaces started. This metric will only be collected on Linux";
        StartedUserPodsErrors "kubelet_started_user_namespaced_pods_errors_total" [] "Cumulative number of errors when starting pods with user namespaces. This metric will only be collected on Linux";
        TopologyAdmissionErrors "kubelet_topology_manager_admission_errors_total" [] "The number of admission request failures where resources could not be aligned";
        TopologyAdmissions "kubelet_topology_manager_admission_requests_total" [] "The number of admission requests where resources have to be aligned";
    }
}

families! {
    /// What is so now.
    Level {
        ActivePods "kubelet_active_pods" ["static"] "The number of pods the kubelet considers active and which are being considered when admitting new pods. static is true if the pod is not from the apiserver";
        CgroupVersion "kubelet_cgroup_version" [] "cgroup version on the hosts";
        ClaimsInUse "dra_resource_claims_in_use" ["driver_name"] "The number of ResourceClaims that are currently in use on the node, by driver name (driver_name label value) and across all drivers (special value <any> for driver_name). Note that the sum of all by-driver counts is not the total number of in-use ResourceClaims because the same ResourceClaim might use devices from different drivers. Instead, use the count for the <any> driver_name";
        ClientCertificate "kubelet_certificate_manager_client_ttl_seconds" [] "Gauge of the TTL (time-to-live) of the Kubelet's client certificate. The value is in seconds until certificate expiry (negative if already expired). If client certificate is invalid or unused, the value will be +INF";
        CpusExclusive "kubelet_cpu_manager_exclusive_cpu_allocation_count" [] "The total number of CPUs exclusively allocated to containers running on this node";
        CpusPerNode "kubelet_cpu_manager_allocation_per_numa" ["numa_node"] "Number of CPUs allocated per NUMA node";
        CpusShared "kubelet_cpu_manager_shared_pool_size_millicores" [] "The size of the shared CPU pool for non-guaranteed QoS pods, in millicores";
        DesiredPods "kubelet_desired_pods" ["static"] "The number of pods the kubelet is being instructed to run. static is true if the pod is not from the apiserver";
        EphemeralContainers "kubelet_managed_ephemeral_containers" [] "Current number of ephemeral containers in pods managed by this kubelet";
        EventsLastSeen "kubelet_pleg_last_seen_seconds" [] "Timestamp in seconds when PLEG was last seen active";
        HttpInFlight "kubelet_http_inflight_requests" ["method", "path", "server_type", "long_running"] "Number of the inflight http requests";
        LogBytes "kubelet_container_log_filesystem_used_bytes" ["uid", "namespace", "pod", "container"] "Bytes used by the container's logs on the filesystem";
        MirrorPods "kubelet_mirror_pods" [] "The number of mirror pods the kubelet will try to create (one per admitted static pod)";
        NodeName "kubelet_node_name" ["node"] "The node's name. The count is always 1";
        NodeStartup "kubelet_node_startup_duration_seconds" [] "Duration in seconds of node startup in total";
        NodeStartupBefore "kubelet_node_startup_pre_kubelet_duration_seconds" [] "Duration in seconds of node startup before kubelet starts";
        NodeStartupRegistered "kubelet_node_startup_post_registration_duration_seconds" [] "Duration in seconds of node startup after registration";
        NodeStartupRegistering "kubelet_node_startup_registration_duration_seconds" [] "Duration in seconds of node startup during registration";
        NodeStartupUnregistered "kubelet_node_startup_pre_registration_duration_seconds" [] "Duration in seconds of node startup before registration";
        OrphanVolumes "kubelet_orphan_pod_cleaned_volumes" [] "The total number of orphaned Pods whose volumes were cleaned in the last periodic sweep";
        OrphanVolumesErrors "kubelet_orphan_pod_cleaned_volumes_errors" [] "The number of orphaned Pods whose volumes failed to be cleaned in the last periodic sweep";
        PodCertificateStates "kubelet_podcertificate_states" ["signer_name", "state"] "Gauge vector reporting the number of pod certificate projected volume sources, faceted by signer_name and state";
        PullIntents "kubelet_imagemanager_ondisk_pullintents" [] "Number of ImagePullIntents stored on disk";
        PulledRecords "kubelet_imagemanager_ondisk_pulledrecords" [] "Number of ImagePulledRecords stored on disk";
        ResizesInProgress "kubelet_pod_in_progress_resizes" [] "Number of in-progress resizes for pods";
        ResizesPending "kubelet_pod_pending_resizes" ["reason"] "Number of pending resizes for pods";
        RunningContainers "kubelet_running_containers" ["container_state"] "Number of containers currently running";
        RunningPods "kubelet_running_pods" [] "Number of pods that have a running pod sandbox";
        ServerCertificate "kubelet_certificate_manager_server_ttl_seconds" [] "Gauge of the shortest TTL (time-to-live) of the Kubelet's serving certificate. The value is in seconds until certificate expiry (negative if already expired). If serving certificate is invalid or unused, the value will be +INF";
        ShutdownEnd "kubelet_graceful_shutdown_end_time_seconds" [] "Last graceful shutdown start time since unix epoch in seconds";
        ShutdownStart "kubelet_graceful_shutdown_start_time_seconds" [] "Last graceful shutdown start time since unix epoch in seconds";
        VolumeCapacity "kubelet_volume_stats_capacity_bytes" ["namespace", "persistentvolumeclaim"] "Capacity in bytes of the volume";
        VolumeAvailable "kubelet_volume_stats_available_bytes" ["namespace", "persistentvolumeclaim"] "Number of available bytes in the volume";
        VolumeUsed "kubelet_volume_stats_used_bytes" ["namespace", "persistentvolumeclaim"] "Number of used bytes in the volume";
        VolumeInodes "kubelet_volume_stats_inodes" ["namespace", "persistentvolumeclaim"] "Maximum number of inodes in the volume";
        VolumeInodesFree "kubelet_volume_stats_inodes_free" ["namespace", "persistentvolumeclaim"] "Number of free inodes in the volume";
        VolumeInodesUsed "kubelet_volume_stats_inodes_used" ["namespace", "persistentvolumeclaim"] "Number of used inodes in the volume";
        VolumeAbnormal "kubelet_volume_stats_health_status_abnormal" ["namespace", "persistentvolumeclaim"] "Abnormal volume health status. The count is either 1 or 0. 1 indicates the volume is unhealthy, 0 indicates volume is healthy";
        WorkingPods "kubelet_working_pods" ["lifecycle", "config", "static"] "Number of pods the kubelet is actually running, broken down by lifecycle phase, whether the pod is desired, orphaned, or runtime only (also orphaned), and whether the pod is static. An orphaned pod has been removed from local configuration or force deleted in the API and consumes resources that are not otherwise visible";
    }
}

/// Source: `prometheus.DefBuckets`.
pub(super) const COMMON: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Source: `podStartupDurationBuckets`.
const STARTS: [f64; 25] = [
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0,
    480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];
/// Source: `imagePullDurationBuckets`.
const PULLS: [f64; 18] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0,
    2700.0, 3600.0,
];
const STATUSES: [f64; 11] = [0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0];
/// Source: `podResizeDurationBuckets`.
const RESIZES: [f64; 14] = [
    10.0, 50.0, 100.0, 500.0, 1_000.0, 2_000.0, 5_000.0, 10_000.0, 20_000.0, 30_000.0, 60_000.0, 120_000.0,
    300_000.0, 600_000.0,
];
const OPERATIONS: [f64; 14] = exponential(0.005, 2.5);
const ADMISSIONS: [f64; 15] = exponential(0.05, 2.0);
const CONTAINERS: [f64; 5] = exponential(1.0, 2.0);

/// Source: `prometheus.ExponentialBuckets`.
const fn exponential<const COUNT: usize>(first: f64, factor: f64) -> [f64; COUNT] {
    let mut all = [first; COUNT];
    let mut at = 1;
    while at < COUNT {
        all[at] = all[at - 1] * factor;
        at += 1;
    }
    all
}

families! {
    /// What is measured, in seconds unless the name says otherwise.
    Measure {
        CgroupManager "kubelet_cgroup_manager_duration_seconds" ["operation_type"] "Duration in seconds for cgroup manager operations. Broken down by method" in COMMON;
        ClaimOperations "dra_operations_duration_seconds" ["operation_name", "is_error"] "Latency histogram in seconds for the duration of handling all ResourceClaims referenced by a pod when the pod starts or stops. Identified by the name of the operation (PrepareResources or UnprepareResources) and separated by the success of the operation. The number of failed operations is provided through the histogram's overall count" in COMMON;
        ContainersPerPod "kubelet_containers_per_pod_count" [] "The number of containers per pod" in CONTAINERS;
        DevicePluginAllocation "kubelet_device_plugin_alloc_duration_seconds" ["resource_name"] "Duration in seconds to serve a device plugin Allocation request. Broken down by resource name" in COMMON;
        DriverCalls "dra_grpc_operations_duration_seconds" ["driver_name", "method_name", "grpc_status_code"] "Duration in seconds of the DRA gRPC operations" in COMMON;
        EventLatency "kubelet_evented_pleg_connection_latency_seconds" [] "The latency of streaming connection with the CRI runtime, measured in seconds" in COMMON;
        EvictionStatsAge "kubelet_eviction_stats_age_seconds" ["eviction_signal"] "Time between when stats are collected, and when pod is evicted based on those stats by eviction signal" in COMMON;
        Http "kubelet_http_requests_duration_seconds" ["method", "path", "server_type", "long_running"] "Duration in seconds to serve http requests" in COMMON;
        ImagePull "kubelet_image_pull_duration_seconds" ["image_size_in_bytes"] "Duration in seconds to pull an image" in PULLS;
        PodResize "kubelet_pod_resize_duration_milliseconds" ["success"] "Duration in milliseconds to actuate a pod resize" in RESIZES;
        PodStart "kubelet_pod_start_duration_seconds" [] "Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run" in STARTS;
        PodStartSli "kubelet_pod_start_sli_duration_seconds" [] "Duration in seconds to start a pod, excluding time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch" in STARTS;
        PodStartTotal "kubelet_pod_start_total_duration_seconds" [] "Duration in seconds to start a pod since creation, including time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch" in STARTS;
        PodStatusSync "kubelet_pod_status_sync_duration_seconds" [] "Duration in seconds to sync a pod status update. Measures time from detection of a change to pod status until the API is successfully updated for that pod, even if multiple intevening changes to pod status occur" in STATUSES;
        PodWorker "kubelet_pod_worker_duration_seconds" ["operation_type"] "Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync" in COMMON;
        PodWorkerStart "kubelet_pod_worker_start_duration_seconds" [] "Duration in seconds from kubelet seeing a pod to starting a worker" in COMMON;
        Relist "kubelet_pleg_relist_duration_seconds" [] "Duration in seconds for relisting pods in PLEG" in COMMON;
        RuntimeOperationsTime "kubelet_runtime_operations_duration_seconds" ["operation_type"] "Duration in seconds of runtime operations. Broken down by operation type" in OPERATIONS;
        Sandbox "kubelet_run_podsandbox_duration_seconds" ["runtime_handler"] "Duration in seconds of the run_podsandbox operations. Broken down by RuntimeClass.Handler" in COMMON;
        TopologyAdmission "kubelet_topology_manager_admission_duration_ms" [] "Duration in milliseconds to serve a pod admission request" in ADMISSIONS;
        VolumeLook "kubelet_volume_metric_collection_duration_seconds" ["metric_source"] "Duration in seconds to calculate volume stats" in COMMON;
    }
}

/// How `kubelet_image_pull_duration_seconds` calls sizes. Source: `imageSizeBuckets`.
const IMAGE_SIZES: [(u64, &str); 12] = [
    (0, "0-10MB"),
    (10, "10MB-100MB"),
    (100, "100MB-500MB"),
    (500, "500MB-1GB"),
    (1024, "1GB-5GB"),
    (5 * 1024, "5GB-10GB"),
    (10 * 1024, "10GB-20GB"),
    (20 * 1024, "20GB-30GB"),
    (30 * 1024, "30GB-40GB"),
    (40 * 1024, "40GB-60GB"),
    (60 * 1024, "60GB-100GB"),
    (100 * 1024, "GT100GB"),
];

/// The label of an image of so many bytes; `N/A` if that is not known. Source: `GetImageSizeBucket`.
pub(crate) fn image_size(bytes: u64) -> &'static str {
    let fits = |(from, _): &&(u64, &str)| bytes > 0 && bytes >> 20 >= *from;
    IMAGE_SIZES.iter().rfind(fits).map_or("N/A", |(_, label)| *label)
}

/// Reasons that a series is kept for. Source: `admissionRejectionReasons`.
const REJECTIONS: [&str; 19] = [
    "AppArmor",
    "PodOSSelectorNodeLabelDoesNotMatch",
    "PodOSNotSupported",
    "InvalidNodeInfo",
    "InitContainerRestartPolicyForbidden",
    "SupplementalGroupsPolicyNotSupported",
    "UnexpectedAdmissionError",
    "UnknownReason",
    "UnexpectedPredicateFailureType",
    "OutOfcpu",
    "OutOfmemory",
    "OutOfephemeral-storage",
    "OutOfpods",
    "node(s) had taints that the pod didn't tolerate",
    "Evicted",
    "SysctlForbidden",
    "TopologyAffinityError",
    "NodeShutdown",
    "VolumeAttachmentLimitExceeded",
];

/// The label of a refusal: names of resources are anybody's. Source: `recordAdmissionRejection`.
pub(super) fn rejection(reason: &str) -> &'static str {
    let known = REJECTIONS.into_iter().find(|known| *known == reason);
    known.unwrap_or(if reason.starts_with("OutOf") { "OutOfExtendedResources" } else { "Other" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_in_upstreams_classes() {
        let megabyte = 1 << 20;
        for (bytes, label) in [
            (0, "N/A"),
            (1, "0-10MB"),
            (10 * megabyte - 1, "0-10MB"),
            (10 * megabyte, "10MB-100MB"),
            (1024 * megabyte, "1GB-5GB"),
            (u64::MAX, "GT100GB"),
        ] {
            assert_eq!(image_size(bytes), label, "{bytes}");
        }
    }

    #[test]
    fn refusals_have_few_reasons() {
        for (reason, label) in [
            ("OutOfcpu", "OutOfcpu"),
            ("OutOfexample.com/gpu", "OutOfExtendedResources"),
            ("NodeAffinity", "Other"),
        ] {
            assert_eq!(rejection(reason), label);
        }
    }

    #[test]
    fn buckets_grow_as_upstreams_do() {
        assert_eq!(CONTAINERS, [1.0, 2.0, 4.0, 8.0, 16.0]);
        assert_eq!((OPERATIONS[1], ADMISSIONS[14]), (0.0125, 0.05 * 16_384.0));
        let all = Measure::ALL.iter().map(|row| row.buckets);
        assert!(all.into_iter().all(|buckets| buckets.len() > 4 && buckets.is_sorted()));
    }
}
