//! The kinds that `knarr why` knows: where they are, and what they are called.

/// A kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// `ReplicaSet`
    pub name: &'static str,
    /// `replicaset`
    pub singular: &'static str,
    /// `replicasets`
    pub plural: &'static str,
    /// `rs`
    pub short: &'static str,
    /// Of its group and version: `/apis/apps/v1`.
    pub prefix: &'static str,
}

const fn kind(
    name: &'static str,
    singular: &'static str,
    plural: &'static str,
    short: &'static str,
    prefix: &'static str,
) -> Kind {
    Kind { name, singular, plural, short, prefix }
}

/// All of them.
pub const KINDS: &[Kind] = &[
    kind("Pod", "pod", "pods", "po", "/api/v1"),
    kind("Deployment", "deployment", "deployments", "deploy", "/apis/apps/v1"),
    kind("ReplicaSet", "replicaset", "replicasets", "rs", "/apis/apps/v1"),
    kind("StatefulSet", "statefulset", "statefulsets", "sts", "/apis/apps/v1"),
    kind("DaemonSet", "daemonset", "daemonsets", "ds", "/apis/apps/v1"),
    kind("Job", "job", "jobs", "", "/apis/batch/v1"),
    kind("CronJob", "cronjob", "cronjobs", "cj", "/apis/batch/v1"),
    kind(
        "HorizontalPodAutoscaler",
        "horizontalpodautoscaler",
        "horizontalpodautoscalers",
        "hpa",
        "/apis/autoscaling/v2",
    ),
    kind("Service", "service", "services", "svc", "/api/v1"),
    kind("PersistentVolumeClaim", "persistentvolumeclaim", "persistentvolumeclaims", "pvc", "/api/v1"),
    kind("Node", "node", "nodes", "no", "/api/v1"),
];

impl Kind {
    /// By any of its names, as kubectl takes them.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        let name = name.to_lowercase();
        let name = name.split('.').next().unwrap_or_default();
        KINDS.iter().find(|kind| !name.is_empty() && [kind.singular, kind.plural, kind.short].contains(&name))
    }

    /// Group, empty for core, and plural.
    #[must_use]
    pub fn resource(&self) -> (String, String) {
        let group = self.prefix.strip_prefix("/apis/").and_then(|rest| rest.split('/').next());
        (group.unwrap_or_default().to_owned(), self.plural.to_owned())
    }

    /// `v1`
    #[must_use]
    pub fn version(&self) -> &'static str {
        self.prefix.rsplit('/').next().unwrap_or_default()
    }

    /// The path by which the objects of all namespaces are listed.
    #[must_use]
    pub fn path_of_all(&self) -> String {
        format!("{}/{}", self.prefix, self.plural)
    }

    /// The path by which its objects in a namespace are listed.
    #[must_use]
    pub fn path(&self, namespace: &str) -> String {
        if self.name == "Node" {
            return format!("{}/{}", self.prefix, self.plural);
        }
        format!("{}/namespaces/{namespace}/{}", self.prefix, self.plural)
    }
}
