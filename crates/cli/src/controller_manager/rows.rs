//! The rows, in the order of the controllers that they are about.

use super::Form::{Duration, Fraction, Number, Period, Switch, Text};
use super::{Effect, Flag, Form};

/// Keys that a controller works on at a time: as many as the engine has for each.
const WORKERS: &str = "8";
const COUNT: Form = Number(0, i32::MAX as i64);

const NO_RESYNC: &str = "changes wake the controllers, nothing is looked at by the clock";
const NO_CLOUD: &str = "clouds bring a controller manager of their own";
const NO_RECYCLER: &str = "volumes are not recycled";
const NO_LIMIT: &str = "requests are not held back here, the API server shares itself out";
const NO_BATCHES: &str = "what has changed is put together as it comes";
const NO_PROFILES: &str = "there are no profiles";
const NO_WAIT: &str = "nothing waits for it";
const NO_PROXY: &str = "no front proxy stands before this port";
const NO_CHOICE: &str = "the port speaks TLS 1.2 and 1.3 with good cipher suites only";
const NO_HTTP2: &str = "the port speaks HTTP/1.1";
const NO_SHARING: &str = "the port is nobody else's";
const NO_HIDING: &str = "all metrics are shown";

const fn acts(name: &'static str, form: Form, default: &'static str, help: &'static str) -> Flag {
    Flag { name, form, default, effect: Effect::Acts, help }
}

const fn workers(name: &'static str, controller: &'static str, help: &'static str) -> Flag {
    Flag { name, form: Number(1, 1_000), default: WORKERS, effect: Effect::Workers(controller), help }
}

const fn nothing(name: &'static str, form: Form, why: &'static str, help: &'static str) -> Flag {
    Flag { name, form, default: "", effect: Effect::Nothing(why), help }
}

const fn only(
    name: &'static str,
    values: &'static [&'static str],
    why: &'static str,
    help: &'static str,
) -> Flag {
    Flag { name, form: Text, default: "", effect: Effect::Only(values, why), help }
}

/// Every flag.
pub const FLAGS: &[Flag] = &[
    workers("concurrent-deployment-syncs", "deployment-controller", "Deployments at a time"),
    workers("concurrent-replicaset-syncs", "replicaset-controller", "ReplicaSets at a time"),
    workers("concurrent-rc-syncs", "replicationcontroller-controller", "ReplicationControllers at a time"),
    workers("concurrent-statefulset-syncs", "statefulset-controller", "StatefulSets at a time"),
    workers("concurrent-daemonset-syncs", "daemon-set-controller", "DaemonSets at a time"),
    workers("concurrent-job-syncs", "job-controller", "Jobs at a time"),
    workers("concurrent-cron-job-syncs", "cronjob-controller", "CronJobs at a time"),
    workers(
        "concurrent-ttl-after-finished-syncs",
        "ttl-after-finished-controller",
        "Finished Jobs at a time",
    ),
    workers(
        "concurrent-endpoint-syncs",
        "endpoints-controller",
        "Services at a time whose Endpoints are written",
    ),
    nothing(
        "endpoint-updates-batch-period",
        Duration,
        NO_BATCHES,
        "How long changes of Endpoints are gathered",
    ),
    workers(
        "concurrent-service-endpoint-syncs",
        "endpointslice-controller",
        "Services at a time whose EndpointSlices are written",
    ),
    acts("max-endpoints-per-slice", Number(1, 1_000), "100", "Most endpoints of an EndpointSlice"),
    nothing(
        "endpointslice-updates-batch-period",
        Duration,
        NO_BATCHES,
        "How long changes of EndpointSlices are gathered",
    ),
    workers(
        "mirroring-concurrent-service-endpoint-syncs",
        "endpointslice-mirroring-controller",
        "Endpoints at a time that are mirrored to EndpointSlices",
    ),
    acts(
        "mirroring-max-endpoints-per-subset",
        Number(1, 1_000),
        "1000",
        "Most addresses of a subset of Endpoints that are mirrored",
    ),
    nothing(
        "mirroring-endpointslice-updates-batch-period",
        Duration,
        NO_BATCHES,
        "How long changes of mirrored Endpoints are gathered",
    ),
    workers("concurrent-gc-syncs", "garbage-collector-controller", "Objects at a time that may be garbage"),
    acts("enable-garbage-collector", Switch, "true", "Whether objects go whose owners are gone"),
    workers("concurrent-namespace-syncs", "namespace-controller", "Namespaces at a time"),
    nothing("namespace-sync-period", Duration, NO_RESYNC, "How often Namespaces are looked at"),
    workers("concurrent-resource-quota-syncs", "resourcequota-controller", "ResourceQuotas at a time"),
    acts("resource-quota-sync-period", Period, "5m0s", "How often use is counted anew"),
    workers(
        "concurrent-horizontal-pod-autoscaler-syncs",
        "horizontal-pod-autoscaler-controller",
        "HorizontalPodAutoscalers at a time",
    ),
    acts(
        "horizontal-pod-autoscaler-sync-period",
        Period,
        "15s",
        "How often each autoscaler asks what its Pods use",
    ),
    acts(
        "horizontal-pod-autoscaler-downscale-stabilization",
        Duration,
        "5m0s",
        "How far back the highest recommendation counts before Pods go",
    ),
    acts(
        "horizontal-pod-autoscaler-tolerance",
        Fraction(0.0, 1_000.0),
        "0.1",
        "By how much use must differ from what is wanted before anything is scaled",
    ),
    acts(
        "horizontal-pod-autoscaler-cpu-initialization-period",
        Duration,
        "5m0s",
        "How long after a Pod's start its CPU use may not count",
    ),
    acts(
        "horizontal-pod-autoscaler-initial-readiness-delay",
        Duration,
        "30s",
        "How long after a Pod's start it counts as one that has never been ready",
    ),
    acts("node-monitor-grace-period", Period, "50s", "How long a Node may be silent before it is Unknown"),
    acts("node-startup-grace-period", Period, "1m0s", "The same for one that has never said anything"),
    acts(
        "node-eviction-rate",
        Fraction(0.0, 1_000_000.0),
        "0.1",
        "Nodes of a zone in a second whose Pods are driven off because nothing is heard of them",
    ),
    acts(
        "secondary-node-eviction-rate",
        Fraction(0.0, 1_000_000.0),
        "0.01",
        "The same in a large zone most of whose Nodes are not ready; in a small one there is none",
    ),
    acts("large-cluster-size-threshold", COUNT, "50", "How many Nodes a zone has that is not large"),
    acts(
        "unhealthy-zone-threshold",
        Fraction(0.0, 1.0),
        "0.55",
        "The share of a zone's Nodes, three at least, that are not ready where the zone is unhealthy",
    ),
    workers(
        "concurrent-device-taint-eviction-syncs",
        "device-taint-eviction-controller",
        "Pods that leave tainted devices, and DeviceTaintRules, at a time",
    ),
    acts("terminated-pod-gc-threshold", COUNT, "12500", "How many Pods that are over are kept; 0 for all"),
    acts(
        "node-cidr-mask-size-ipv4",
        Number(0, 32),
        "24",
        "The prefix length of Nodes' ranges of IPv4 addresses for Pods",
    ),
    acts(
        "node-cidr-mask-size-ipv6",
        Number(0, 128),
        "64",
        "The prefix length of Nodes' ranges of IPv6 addresses for Pods",
    ),
    only("cidr-allocator-type", &["RangeAllocator"], NO_CLOUD, "Who gives Nodes their ranges"),
    acts("cluster-signing-duration", Period, "8760h0m0s", "Most that a signed certificate lives"),
    acts(
        "legacy-service-account-token-clean-up-period",
        Period,
        "8760h0m0s",
        "How long a token in a Secret is not used before it is marked invalid, and marked before it goes",
    ),
    workers(
        "concurrent-serviceaccount-token-syncs",
        "serviceaccount-token-controller",
        "Token Secrets at a time",
    ),
    nothing("pvclaimbinder-sync-period", Duration, NO_RESYNC, "How often claims and volumes are looked at"),
    acts(
        "enable-dynamic-provisioning",
        Switch,
        "true",
        "Whether volumes are made for claims that name a StorageClass",
    ),
    nothing(
        "enable-hostpath-provisioner",
        Switch,
        "its StorageClass is of a plugin that nothing here has",
        "Whether kubernetes.io/host-path makes volumes",
    ),
    nothing("flex-volume-plugin-dir", Text, "there are no Flex volumes", "Where drivers of Flex volumes are"),
    nothing("pv-recycler-pod-template-filepath-nfs", Text, NO_RECYCLER, "The Pod that empties NFS volumes"),
    nothing("pv-recycler-minimum-timeout-nfs", COUNT, NO_RECYCLER, "Seconds that such a Pod has at least"),
    nothing("pv-recycler-increment-timeout-nfs", COUNT, NO_RECYCLER, "Seconds more for each Gi"),
    nothing(
        "pv-recycler-pod-template-filepath-hostpath",
        Text,
        NO_RECYCLER,
        "The Pod that empties hostPath volumes",
    ),
    nothing(
        "pv-recycler-minimum-timeout-hostpath",
        COUNT,
        NO_RECYCLER,
        "Seconds that such a Pod has at least",
    ),
    nothing("pv-recycler-timeout-increment-hostpath", COUNT, NO_RECYCLER, "Seconds more for each Gi"),
    workers(
        "concurrent-ephemeralvolume-syncs",
        "ephemeral-volume-controller",
        "Pods at a time that get claims of their own",
    ),
    acts(
        "disable-force-detach-on-timeout",
        Switch,
        "false",
        "Whether volumes of a Node that is not heard of stay attached until somebody says that it is down",
    ),
    nothing(
        "disable-attach-detach-reconcile-sync",
        Switch,
        NO_RESYNC,
        "Whether attached volumes are not looked at again",
    ),
    nothing(
        "attach-detach-reconcile-sync-period",
        Duration,
        NO_RESYNC,
        "How often attached volumes are looked at",
    ),
    nothing(
        "concurrent-validating-admission-policy-status-syncs",
        COUNT,
        "the API server writes their status",
        "ValidatingAdmissionPolicies at a time",
    ),
    acts(
        "controller-start-interval",
        Duration,
        "0s",
        "How long one controller waits for the one before it to start",
    ),
    nothing(
        "controller-shutdown-timeout",
        Duration,
        "a plan that was begun is gone on with by whoever leads next",
        "How long controllers may take to stop",
    ),
    nothing("min-resync-period", Duration, NO_RESYNC, "How often everything is looked at"),
    nothing("kube-api-content-type", Text, "requests are JSON", "The form of requests to the API server"),
    nothing("kube-api-qps", Fraction(-1.0, f64::MAX), NO_LIMIT, "Most requests a second to the API server"),
    nothing("kube-api-burst", COUNT, NO_LIMIT, "Most requests at once before that counts"),
    only("cloud-provider", &["", "external"], NO_CLOUD, "The cloud"),
    nothing("cloud-config", Text, NO_CLOUD, "The cloud's configuration"),
    nothing("external-cloud-volume-plugin", Text, NO_CLOUD, "The cloud's volumes"),
    nothing("allow-untagged-cloud", Switch, NO_CLOUD, "Whether instances need no tag"),
    nothing("configure-cloud-routes", Switch, NO_CLOUD, "Whether the cloud routes to Nodes' ranges"),
    nothing("route-reconciliation-period", Duration, NO_CLOUD, "How often these routes are looked at"),
    nothing("cluster-name", Text, NO_CLOUD, "The cluster's name in the cloud"),
    nothing(
        "concurrent-service-syncs",
        COUNT,
        NO_CLOUD,
        "Services at a time that get a cloud's load balancer",
    ),
    nothing("node-monitor-period", Duration, NO_RESYNC, "How often Nodes are looked at"),
    nothing("node-sync-period", Duration, NO_RESYNC, "How often Nodes are compared with the cloud's"),
    only("enable-leader-migration", &["false"], NO_CLOUD, "Whether a cloud's controllers move elsewhere"),
    only("leader-migration-config", &[""], NO_CLOUD, "Which of them"),
    nothing(
        "authentication-tolerate-lookup-failure",
        Switch,
        NO_WAIT,
        "Whether it starts without that ConfigMap",
    ),
    nothing("requestheader-client-ca-file", Text, NO_PROXY, "Who signs the certificates of front proxies"),
    nothing("requestheader-allowed-names", Text, NO_PROXY, "Front proxies that are believed"),
    nothing("requestheader-username-headers", Text, NO_PROXY, "Where they name the user"),
    nothing("requestheader-uid-headers", Text, NO_PROXY, "Where they give the user's uid"),
    nothing("requestheader-group-headers", Text, NO_PROXY, "Where they name groups"),
    nothing("requestheader-extra-headers-prefix", Text, NO_PROXY, "Where they say more"),
    nothing(
        "cert-dir",
        Text,
        "a certificate that is made at the start is in no file",
        "Where such a certificate is kept",
    ),
    nothing("tls-cipher-suites", Text, NO_CHOICE, "Cipher suites of the port"),
    nothing("tls-min-version", Text, NO_CHOICE, "The oldest TLS of the port"),
    nothing("http2-max-streams-per-connection", COUNT, NO_HTTP2, "Streams of a connection"),
    nothing("disable-http2-serving", Switch, NO_HTTP2, "Whether the port speaks HTTP/1.1 only"),
    nothing("permit-port-sharing", Switch, NO_SHARING, "Whether others may listen on the port too"),
    nothing("permit-address-sharing", Switch, NO_SHARING, "Whether others may listen on the address too"),
    nothing("profiling", Switch, NO_PROFILES, "Whether /debug/pprof is served"),
    nothing("contention-profiling", Switch, NO_PROFILES, "Whether locks are profiled"),
    nothing("show-hidden-metrics-for-version", Text, NO_HIDING, "Metrics of an older version to show"),
    nothing("disabled-metrics", Text, NO_HIDING, "Metrics to hide"),
    nothing("allow-metric-labels", Text, NO_HIDING, "Values of labels to show"),
    nothing("allow-metric-labels-manifest", Text, NO_HIDING, "A file that says so"),
    nothing("logging-format", Text, "--log-format says that", "How log lines look"),
    nothing(
        "log-flush-frequency",
        Duration,
        "each line is written at once",
        "How often log lines are written",
    ),
    nothing("vmodule", Text, "-v is for all modules", "How much single modules log"),
];
