//! What of the machine Pods can have, and who has parts of it alone: the fields about reserved resources, CPUs, memory
//! and topology.
//!
//! Source: `pkg/kubelet/apis/config/validation`, `pkg/kubelet/cm` of upstream.

use serde_json::Value;

use super::configuration::{Fields, narrow, set};
use super::flag::flag;
use super::reserved::ReservedCgroup;
use super::{Config, Enforced, Reserved, SwapBehavior, USERS_OF_POD};
use crate::config::ReservedMemory;
use crate::config::alignment::{NODES_BOUND, NODES_MAX, Policy, Scope};
use crate::config::{CpuSet, StaticPolicy};

impl Config {
    pub(super) fn apply_resources(&mut self, fields: &mut Fields<'_>) {
        set(&mut self.max_pods, fields.number("maxPods", 0).and_then(narrow));
        if let Some(per_core) = fields.integer("podsPerCore", 0).filter(|n| *n > 0) {
            let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
            let most =
                u32::try_from(per_core).unwrap_or(u32::MAX).saturating_mul(u32::try_from(cores).unwrap_or(1));
            self.max_pods = self.max_pods.min(most);
        }
        self.apply_users(fields);
        // Source: whatever is below nothing is any number.
        set(&mut self.pod_pids_limit, fields.integer("podPidsLimit", i64::MIN).map(|limit| limit.max(-1)));
        set(&mut self.cpu_cfs_quota, fields.flag("cpuCFSQuota"));
        set(&mut self.single_process_oom_kill, fields.flag("singleProcessOOMKill").map(Some));
        let swap = fields.object("memorySwap").and_then(|swap| swap.get("swapBehavior"));
        match swap.map(|behavior| behavior.as_str().unwrap_or_default()) {
            None | Some("" | "NoSwap") => {}
            Some("LimitedSwap") => self.swap_behavior = SwapBehavior::Limited,
            Some(other) => fields.error(
                "memorySwap.swapBehavior",
                &format!("Invalid value: {other:?}: must be one of: \"\", \"LimitedSwap\" or \"NoSwap\""),
            ),
        }
        let reserved =
            Reserved { kube: fields.amounts("kubeReserved"), system: fields.amounts("systemReserved") };
        if !reserved.kube.is_empty() {
            self.reserved.kube = reserved.kube;
        }
        if !reserved.system.is_empty() {
            self.reserved.system = reserved.system;
        }
        self.apply_cpus(fields);
        self.apply_memory(fields);
        self.apply_topology(fields);
        self.apply_topology_options(fields);
        self.apply_enforcement(fields);
    }

    /// Source: `userNamespaces` of upstream's configuration.
    fn apply_users(&mut self, fields: &mut Fields<'_>) {
        const FIELD: &str = "userNamespaces.idsPerPod";
        let users = fields.object("userNamespaces").and_then(|users| users.get("idsPerPod"));
        let Some(given) = users.filter(|users| !users.is_null()) else { return };
        let least = i64::from(USERS_OF_POD);
        match given.as_i64() {
            None => fields.error(FIELD, &format!("Invalid value: {given}: must be a whole number")),
            Some(users) if users < least => fields.error(FIELD, &format!("must not be less than {least}")),
            Some(users) if users % least != 0 => {
                fields.error(FIELD, &format!("must be a multiple of {least}"));
            }
            Some(users) => match u32::try_from(users) {
                Ok(users) => self.users_of_pod = users,
                Err(_) => fields.error(FIELD, &format!("must not be more than {}", u32::MAX)),
            },
        }
    }

    fn apply_cpus(&mut self, fields: &mut Fields<'_>) {
        let cpus = fields.text("reservedSystemCPUs").filter(|text| !text.is_empty());
        let cpus = match cpus.map(|text| text.parse::<CpuSet>()).transpose() {
            Ok(cpus) => cpus,
            Err(error) => {
                fields.error("reservedSystemCPUs", &error.to_string());
                None
            }
        };
        if let Some(cpus) = &cpus {
            // Source: with `reservedSystemCPUs`, what the maps say about CPU counts for nothing.
            self.reserved.kube.remove("cpu");
            self.reserved.system.insert("cpu".into(), cpus.len().to_string());
        }
        let options = fields.map("cpuManagerPolicyOptions").unwrap_or_default();
        let mut policy = StaticPolicy::default();
        for (name, value) in options {
            let option = match name.as_str() {
                "full-pcpus-only" => &mut policy.is_full_cores_only,
                "strict-cpu-reservation" => &mut policy.is_reservation_strict,
                "distribute-cpus-across-numa" => &mut policy.is_distributed,
                "prefer-align-cpus-by-uncorecache" => &mut policy.prefers_caches,
                // Source: `CPUManagerPolicyAlphaOptions`, off in v1.35.
                "align-by-socket" | "distribute-cpus-across-cores" => {
                    let why = format!(
                        "CPU Manager Policy Alpha-level Options not enabled, but option \"{name}\" provided"
                    );
                    fields.error("cpuManagerPolicyOptions", &why);
                    continue;
                }
                _ => {
                    let why = format!("unsupported cpumanager option: \"{name}\" ({value})");
                    fields.error("cpuManagerPolicyOptions", &why);
                    continue;
                }
            };
            match flag(&value) {
                Some(is_on) => *option = is_on,
                None => {
                    let why = format!("bad value for option \"{name}\": must be true or false");
                    fields.error("cpuManagerPolicyOptions", &why);
                }
            }
        }
        match fields.text("cpuManagerPolicy").as_deref() {
            None | Some("none" | "") => {}
            Some("static") if cpus.is_none() && self.reserved.milli("cpu") == 0 => fields.error(
                "cpuManagerPolicy",
                "the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero",
            ),
            Some("static") => {
                let count = usize::try_from((self.reserved.milli("cpu") + 999) / 1000).unwrap_or_default();
                (policy.reserved, policy.reserved_count) = (cpus.unwrap_or_default(), count);
                self.exclusive_cpus = Some(policy);
            }
            Some(other) => fields.error("cpuManagerPolicy", &format!("unknown policy: \"{other}\"")),
        }
    }

    fn apply_memory(&mut self, fields: &mut Fields<'_>) {
        let reserved = reserved_memory(fields);
        match fields.text("memoryManagerPolicy").as_deref() {
            None | Some("None" | "") if reserved.is_empty() => {}
            None | Some("None" | "") => {
                let why = "can be set only when memoryManagerPolicy is \"Static\"";
                fields.error("reservedMemory", why);
            }
            Some("Static") if reserved.is_empty() => {
                let why = "the Static policy requires reservedMemory, at least for one NUMA node";
                fields.error("memoryManagerPolicy", why);
            }
            Some("Static") => self.reserved_memory = Some(reserved),
            Some(other) => fields.error("memoryManagerPolicy", &format!("unknown policy: \"{other}\"")),
        }
    }

    fn apply_topology(&mut self, fields: &mut Fields<'_>) {
        match fields.text("topologyManagerPolicy").as_deref() {
            None | Some("") => {}
            Some(text) => {
                let all = [Policy::None, Policy::BestEffort, Policy::Restricted, Policy::SingleNumaNode];
                match all.into_iter().find(|policy| policy.as_str() == text) {
                    Some(policy) => self.alignment.policy = policy,
                    None => fields.error(
                        "topologyManagerPolicy",
                        &format!(
                            "Invalid value: {text:?}: must be one of: [\"none\" \"best-effort\" \"restricted\" \"single-numa-node\"]"
                        ),
                    ),
                }
            }
        }
        match fields.text("topologyManagerScope").as_deref() {
            None | Some("") => {}
            Some("container") => self.alignment.scope = Scope::Container,
            Some("pod") => self.alignment.scope = Scope::Pod,
            Some(other) => fields.error(
                "topologyManagerScope",
                &format!("Invalid value: {other:?}: must be one of: [\"container\" \"pod\"]"),
            ),
        }
    }

    fn apply_topology_options(&mut self, fields: &mut Fields<'_>) {
        const FIELD: &str = "topologyManagerPolicyOptions";
        for (name, value) in fields.map(FIELD).unwrap_or_default() {
            match name.as_str() {
                "prefer-closest-numa-nodes" => match flag(&value) {
                    Some(is_on) => self.alignment.prefers_closest = is_on,
                    None => {
                        let why = format!("bad value for option \"{name}\": must be true or false");
                        fields.error(FIELD, &why);
                    }
                },
                "max-allowable-numa-nodes" => match value.parse() {
                    Ok(most) if (NODES_MAX..=NODES_BOUND).contains(&most) => {
                        self.alignment.nodes_max = Some(most);
                    }
                    _ => {
                        let why = format!(
                            "bad value for option \"{name}\": must be between {NODES_MAX} and {NODES_BOUND}"
                        );
                        fields.error(FIELD, &why);
                    }
                },
                _ => fields.error(FIELD, &format!("unknown Topology Manager Policy option: \"{name}\"")),
            }
        }
    }

    fn apply_enforcement(&mut self, fields: &mut Fields<'_>) {
        set(&mut self.cgroups_per_qos, fields.flag("cgroupsPerQOS"));
        let mut path = |name: &str| fields.text(name).filter(|path| !path.is_empty());
        let (kube, system) = (path("kubeReservedCgroup"), path("systemReservedCgroup"));
        if fields.text("reservedSystemCPUs").is_some_and(|cpus| !cpus.is_empty())
            && (kube.is_some() || system.is_some())
        {
            let why = "cannot be used with systemReservedCgroup or kubeReservedCgroup";
            fields.error("reservedSystemCPUs", why);
        }
        if let Some(names) = fields.texts("enforceNodeAllocatable") {
            self.enforced = enforced(&names, &kube, &system, fields);
        }
        if !self.cgroups_per_qos {
            for name in self.enforced.names().iter().filter(|name| **name != "none") {
                let why = format!("must be set to true when {name:?} contained in enforceNodeAllocatable");
                fields.error("cgroupsPerQOS", &why);
            }
        }
    }
}

fn enforced(
    names: &[String],
    kube: &Option<String>,
    system: &Option<String>,
    fields: &mut Fields<'_>,
) -> Enforced {
    const FIELD: &str = "enforceNodeAllocatable";
    let mut all = Enforced::default();
    for (index, name) in names.iter().enumerate() {
        if names.iter().take(index).any(|before| before == name) {
            fields.error(FIELD, &format!("duplicated enforcements {name:?}"));
        }
        let (base, is_cpu_only) =
            name.strip_suffix("-compressible").map_or((name.as_str(), false), |base| (base, true));
        let (path, cgroup, field) = match (base, is_cpu_only) {
            ("pods", false) => {
                all.pods = true;
                continue;
            }
            ("none", false) => {
                if names.len() > 1 {
                    fields.error(FIELD, "must not have anything else with \"none\"");
                }
                continue;
            }
            ("kube-reserved", _) => (kube, &mut all.kube, "kubeReservedCgroup"),
            ("system-reserved", _) => (system, &mut all.system, "systemReservedCgroup"),
            _ => {
                let known = "pods, kube-reserved, kube-reserved-compressible, system-reserved, system-reserved-compressible or none";
                fields.error(FIELD, &format!("Invalid value: {name:?}: must be {known}"));
                continue;
            }
        };
        if cgroup.is_some() {
            let why = format!("must not have both \"{base}\" and \"{base}-compressible\"");
            fields.error(FIELD, &why);
        }
        match path {
            Some(path) => *cgroup = Some(ReservedCgroup { path: path.clone(), is_cpu_only }),
            None => fields.error(field, &format!("must be specified when {FIELD} has {name:?}")),
        }
    }
    all
}

/// A list of nodes with what of each nobody gets.
fn reserved_memory(fields: &mut Fields<'_>) -> ReservedMemory {
    const FIELD: &str = "reservedMemory";
    let mut all = ReservedMemory::new();
    let list = match fields.value(FIELD) {
        None => return all,
        Some(Value::Array(list)) => list,
        Some(_) => {
            fields.wrong(FIELD, "a list");
            return all;
        }
    };
    for (index, item) in list.iter().enumerate() {
        let at = format!("{FIELD}[{index}]");
        let node = item.get("numaNode").and_then(Value::as_u64).and_then(|node| usize::try_from(node).ok());
        let limits = item.get("limits").and_then(Value::as_object);
        let (Some(node), Some(limits)) = (node, limits) else {
            fields.error(&at, "must have numaNode and limits");
            continue;
        };
        for (name, amount) in limits {
            let is_memory = name == "memory" || name.starts_with("hugepages-");
            let amount = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
            let amount = amount.parse::<machinery::quantity::Quantity>().map(|quantity| quantity.value());
            match amount {
                Ok(bytes) if is_memory && bytes > 0 => {
                    if all.entry(node).or_default().insert(name.clone(), bytes).is_some() {
                        fields.error(&at, &format!("{name} of NUMA node {node} is already reserved"));
                    }
                }
                _ => fields.error(&format!("{at}.limits.{name}"), "must be memory or huge pages, above zero"),
            }
        }
    }
    all
}
