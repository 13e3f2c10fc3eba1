use super::*;
use crate::config::SwapBehavior;

pub(super) fn applied(yaml: &str) -> Result<Config, String> {
    let value: Value = serde_saphyr::from_str(yaml).unwrap();
    let mut config = Config::default();
    config.apply(&value).map_err(|error| error.to_string())?;
    Ok(config)
}

#[test]
fn what_is_said_wins_over_the_defaults() {
    let config = applied(
        "{maxPods: 7, clusterDNS: [10.0.0.10], podPidsLimit: 100, staticPodPath: /etc/pods, \
          kubeReserved: {cpu: 500m}, systemReserved: {memory: 1Gi}, evictionHard: {memory.available: 5%}, \
          crashLoopBackOff: {maxContainerRestartPeriod: 1m}, \
          providerID: example://i-1,
          registerWithTaints: [{key: a, value: b, effect: NoSchedule}]}",
    )
    .unwrap();
    assert_eq!((config.max_pods, config.pod_pids_limit), (7, 100));
    assert_eq!((config.reserved.milli("cpu"), config.reserved.whole("memory")), (500, 1 << 30));
    assert_eq!(config.static_pod_path, Some("/etc/pods".into()));
    assert_eq!(config.crash_loop_max.as_secs(), 60);
    assert_eq!(config.register_with_taints, ["a=b:NoSchedule"]);
    assert_eq!(config.provider_id, "example://i-1");
    assert_eq!(config.eviction.thresholds.len(), 2, "what is said replaces all defaults");
    assert_eq!(config.configz["maxPods"], 7);
    assert_eq!(config.configz["nodeLeaseDurationSeconds"], 40);
}

/// What is refused, and why.
const REFUSED: &[(&str, &str)] = &[
    ("{maxPod: 7}", "unknown field \"maxPod\""),
    ("{maxPods: many}", "maxPods: Invalid value: \"many\": must be a whole number of at least 0"),
    ("{evictionHard: {memory.free: 1Gi}}", "unsupported eviction signal memory.free"),
    (
        "{evictionSoft: {memory.available: 1Gi}}",
        "grace period must be specified for the soft eviction threshold memory.available",
    ),
    ("{kubeReserved: {gpu: 1}}", "kubeReserved[gpu]: cannot reserve this resource"),
    (
        "{cgroupDriver: systemd}",
        "cgroupDriver: Unsupported value: \"systemd\": this kubelet supports only \"cgroupfs\"",
    ),
    (
        "{cpuManagerPolicy: static}",
        "cpuManagerPolicy: the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero",
    ),
    ("{port: 1}", "port: use the flag --port"),
    (
        "{cpuManagerPolicyOptions: {other: 'true'}}",
        "cpuManagerPolicyOptions: unsupported cpumanager option: \"other\" (true)",
    ),
    (
        "{cpuManagerPolicyOptions: {align-by-socket: 'true'}}",
        "cpuManagerPolicyOptions: CPU Manager Policy Alpha-level Options not enabled, but option \"align-by-socket\" provided",
    ),
    ("{memoryManagerPolicy: Static}", "memoryManagerPolicy: the Static policy requires reservedMemory"),
    (
        "{reservedMemory: [{numaNode: 0, limits: {cpu: 1}}]}",
        "reservedMemory[0].limits.cpu: must be memory or huge pages, above zero",
    ),
    ("{topologyManagerPolicy: near}", "topologyManagerPolicy: Invalid value: \"near\": must be one of"),
    (
        "{topologyManagerPolicyOptions: {max-allowable-numa-nodes: '7'}}",
        "bad value for option \"max-allowable-numa-nodes\": must be between 8 and 16",
    ),
    (
        "{topologyManagerPolicyOptions: {nearer: 'true'}}",
        "topologyManagerPolicyOptions: unknown Topology Manager Policy option: \"nearer\"",
    ),
    (
        "{memorySwap: {swapBehavior: UnlimitedSwap}}",
        "memorySwap.swapBehavior: Invalid value: \"UnlimitedSwap\": must be one of",
    ),
    ("{topologyManagerScope: node}", "topologyManagerScope: Invalid value: \"node\": must be one of"),
    (
        "{enforceNodeAllocatable: [pods, kube-reserved]}",
        "kubeReservedCgroup: must be specified when enforceNodeAllocatable has \"kube-reserved\"",
    ),
    (
        "{enforceNodeAllocatable: [none, pods]}",
        "enforceNodeAllocatable: must not have anything else with \"none\"",
    ),
    (
        "{reservedSystemCPUs: '0', systemReservedCgroup: /sys}",
        "reservedSystemCPUs: cannot be used with systemReservedCgroup or kubeReservedCgroup",
    ),
    (
        "{shutdownGracePeriod: 10s, shutdownGracePeriodCriticalPods: 20s}",
        "shutdownGracePeriodCriticalPods: 20s must be <= shutdownGracePeriod (10s)",
    ),
    (
        "{shutdownGracePeriod: 1s, shutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 1}]}",
        "Cannot specify both shutdownGracePeriodByPodPriority and shutdownGracePeriod at the same time",
    ),
    ("{authentication: {anonymous: {enabled: true}}}", "authentication.anonymous.enabled: must be false"),
];

#[test]
fn what_cannot_be_is_refused_with_its_field() {
    for (yaml, expect) in REFUSED {
        let error = applied(yaml).map(|_| ()).unwrap_err();
        assert!(error.contains(expect), "{yaml}: {error}");
    }
}

/// Source: `ParseThresholdConfig` and `TestAddAllocatableThresholds` of upstream's `pkg/kubelet/eviction`.
#[test]
fn the_memory_of_all_pods_together_is_watched_where_it_is_held() {
    use crate::config::eviction::Signal::AllocatableMemoryAvailable;
    for (text, expect) in [
        ("{}", true),
        ("{enforceNodeAllocatable: [pods]}", true),
        ("{enforceNodeAllocatable: [none]}", false),
        ("{enforceNodeAllocatable: []}", false),
        ("{evictionHard: {nodefs.available: 5%}}", false),
        (
            "{evictionHard: {}, evictionSoft: {memory.available: 5%}, evictionSoftGracePeriod: {memory.available: 30s}}",
            false,
        ),
        ("{enforceNodeAllocatable: [none], evictionHard: {allocatableMemory.available: 1Gi}}", true),
    ] {
        let mut config = Config::default();
        config.apply(&serde_saphyr::from_str(text).unwrap()).unwrap();
        let found = config.eviction.thresholds.iter().any(|it| it.signal == AllocatableMemoryAvailable);
        assert_eq!(found, expect, "{text}");
    }
}

#[test]
fn the_machine_is_divided_as_it_is_said() {
    let config = applied(
        "{reservedSystemCPUs: '0-1', cpuManagerPolicy: static, cpuManagerPolicyOptions: {full-pcpus-only: 'true'}, \
          memoryManagerPolicy: Static, reservedMemory: [{numaNode: 1, limits: {memory: 1Gi, hugepages-2Mi: 4Mi}}], \
          topologyManagerPolicy: restricted, topologyManagerScope: pod, \
          topologyManagerPolicyOptions: {prefer-closest-numa-nodes: 'true', max-allowable-numa-nodes: '12'}, \
          shutdownGracePeriodByPodPriority: [{priority: 100, shutdownGracePeriodSeconds: 5}, {priority: 0, shutdownGracePeriodSeconds: 9}]}",
    )
    .unwrap();
    let cpus = config.exclusive_cpus.unwrap();
    assert_eq!((cpus.reserved.to_string().as_str(), cpus.is_full_cores_only), ("0-1", true));
    let memory = config.reserved_memory.unwrap();
    assert_eq!((memory[&1]["memory"], memory[&1]["hugepages-2Mi"]), (1 << 30, 4 << 20));
    assert_eq!(config.configz["topologyManagerPolicy"], "restricted");
    assert_eq!((config.alignment.prefers_closest, config.alignment.nodes_max), (true, Some(12)));
    let periods: Vec<_> = config.shutdown.iter().map(|p| (p.priority, p.seconds)).collect();
    assert_eq!(periods, [(0, 9), (100, 5)]);
    let config =
        applied("{cpuCFSQuota: false, memorySwap: {swapBehavior: LimitedSwap}, singleProcessOOMKill: true}");
    let config = config.unwrap();
    assert_eq!((config.cpu_cfs_quota, config.swap_behavior), (false, SwapBehavior::Limited));
    assert_eq!(config.single_process_oom_kill, Some(true));
    let config = applied("{shutdownGracePeriod: 30s, shutdownGracePeriodCriticalPods: 10s}").unwrap();
    let periods: Vec<_> = config.shutdown.iter().map(|p| (p.priority, p.seconds)).collect();
    assert_eq!(periods, [(0, 20), (2_000_000_000, 10)]);
    let config =
        applied("{kubeReservedCgroup: /kube, enforceNodeAllocatable: [pods, kube-reserved-compressible]}")
            .unwrap();
    let kube = config.enforced.kube.unwrap();
    assert_eq!((kube.path.as_str(), kube.is_cpu_only), ("/kube", true));
    assert_eq!(config.configz["enforceNodeAllocatable"], json!(["pods", "kube-reserved-compressible"]));
}

/// What each field says in upstream's cases, and why it is refused; nothing where it is taken.
const UPSTREAM: &str = include_str!("tests/upstream.txt");

/// Source: `TestValidateKubeletConfiguration` and `TestValidateReservedMemoryConfiguration` of upstream's
/// `pkg/kubelet/apis/config/validation`.
#[test]
fn what_upstreams_kubelet_refuses_is_refused() {
    for row in UPSTREAM.lines().filter(|row| !row.is_empty() && !row.starts_with('#')) {
        let mut columns = row.split('|').map(str::trim);
        let [name, yaml, expect] = [(); 3].map(|()| columns.next().expect(row));
        match (applied(yaml).err(), expect) {
            (found, "") => assert_eq!(found, None, "{name}"),
            (None, _) => panic!("{name}: taken"),
            (Some(error), expect) => assert!(error.contains(expect), "{name}: {error}"),
        }
    }
}

#[test]
fn users_of_pods_are_as_many_as_the_operator_says() {
    for (yaml, expect) in [
        ("{}", 65_536),
        ("{userNamespaces: {}}", 65_536),
        ("{userNamespaces: {idsPerPod: null}}", 65_536),
        ("{userNamespaces: {idsPerPod: 65536}}", 65_536),
        ("{userNamespaces: {idsPerPod: 1048576}}", 1 << 20),
    ] {
        let config = applied(yaml).unwrap();
        assert_eq!(config.users_of_pod, expect, "{yaml}");
    }
    assert_eq!(applied("{}").unwrap().configz["userNamespaces"]["idsPerPod"], 65_536);
}

const DEFAULTS: &str = include_str!("tests/defaults.txt");

#[test]
fn what_nobody_says_is_as_upstream_has_it() {
    for row in DEFAULTS.lines().filter(|row| !row.starts_with('#')) {
        let [yaml, field, expect] = row.split(" | ").collect::<Vec<_>>().try_into().expect(row);
        let expect: Value = serde_saphyr::from_str(expect).unwrap();
        assert_eq!(applied(yaml).unwrap().configz[field], expect, "{row}");
    }
    // What is another one here: what is not swapped is not refused, and who says nothing is confined.
    let shown = applied("{}").unwrap().configz;
    assert_eq!((&shown["failSwapOn"], &shown["seccompDefault"]), (&json!(false), &json!(true)));
    assert!(shown.get("kind").is_none() && shown.get("staticPodPath").is_none());
}

#[test]
fn nothing_is_what_is_not_said() {
    let default = Config::default();
    let config = applied(
        "{syncFrequency: 0s, streamingConnectionIdleTimeout: '0', nodeStatusReportFrequency: 0s, \
          nodeStatusUpdateFrequency: 0s, nodeLeaseDurationSeconds: 0, evictionPressureTransitionPeriod: 0s, \
          imageMinimumGCAge: 0s, maxPods: 0, containerLogMaxSize: '', registryBurst: 0, cgroupDriver: '', \
          configMapAndSecretChangeDetectionStrategy: '', cpuManagerPolicy: '', memoryManagerPolicy: '', \
          topologyManagerPolicy: '', topologyManagerScope: '', imagePullCredentialsVerificationPolicy: '', \
          cgroupRoot: '', reservedSystemCPUs: '', tlsMinVersion: ''}",
    )
    .unwrap();
    assert_eq!(config.sync_frequency, default.sync_frequency);
    assert_eq!(config.streaming_connection_idle_timeout, default.streaming_connection_idle_timeout);
    assert_eq!(config.node_status_report_frequency, default.node_status_report_frequency);
    assert_eq!(config.node_lease_duration_seconds, default.node_lease_duration_seconds);
    assert_eq!(config.eviction.transition_period, default.eviction.transition_period);
    assert_eq!(config.image_gc, default.image_gc);
    assert_eq!(config.max_pods, default.max_pods);
    assert_eq!(config.container_log_max_size, default.container_log_max_size);
    assert_eq!(config.image_pulls.rate, default.image_pulls.rate);
    assert_eq!(config.alignment, default.alignment);
    assert_eq!(config.cgroup_root, default.cgroup_root);
    assert!(config.exclusive_cpus.is_none() && config.reserved_memory.is_none());
}

#[test]
fn one_frequency_is_for_both_and_any_number_below_nothing_is_no_limit() {
    for (yaml, expect) in [
        ("{nodeStatusUpdateFrequency: 20s}", 20),
        ("{nodeStatusUpdateFrequency: 20s, nodeStatusReportFrequency: 0s}", 20),
        ("{nodeStatusUpdateFrequency: 20s, nodeStatusReportFrequency: 1m}", 60),
        ("{nodeStatusReportFrequency: 1m}", 60),
        ("{}", 300),
    ] {
        assert_eq!(applied(yaml).unwrap().node_status_report_frequency.as_secs(), expect, "{yaml}");
    }
    for (limit, expect) in [(-1, -1), (-7, -1), (0, 0), (100, 100)] {
        assert_eq!(applied(&format!("{{podPidsLimit: {limit}}}")).unwrap().pod_pids_limit, expect, "{limit}");
    }
}
