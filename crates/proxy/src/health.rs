//! Whether the proxy is fine, and whether a Service has endpoints here, for those who ask over HTTP: load balancers.
//!
//! `/healthz` and `/livez` are upstream's; every Service with a port for health checks is asked at that port.
//! Source: `pkg/proxy/healthcheck`.

mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::Clock;
use http::StatusCode;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use machinery::net::Family;
use serde_json::{Value, json};

use crate::metrics::ProxyMetrics;
pub(crate) use server::{CheckServers, Port, serve};

/// How long a change may wait for the kernel. Source: twice `syncPeriod`.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(60);

/// A Service's key and a family: its port has an answer of its own at addresses of each.
pub(crate) type CheckKey = (String, Family);

/// A Service's port for health checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Check {
    pub(crate) port: u16,
    /// Ready endpoints of the family on this Node.
    pub(crate) local_endpoints: usize,
}

impl Check {
    /// That of a Service whose traffic from load balancers stays on the Node that it comes to.
    pub(crate) fn of<'a>(
        service: &Service,
        slices: impl Iterator<Item = &'a EndpointSlice>,
        own: &str,
        family: Family,
    ) -> Option<Self> {
        let spec = service.spec.as_ref()?;
        let is_local = spec.external_traffic_policy.as_deref() == Some("Local");
        let is_balanced = spec.type_.as_deref() == Some("LoadBalancer");
        let port = u16::try_from(spec.health_check_node_port?).ok().filter(|port| *port != 0)?;
        let endpoints =
            slices.filter(|slice| slice.address_type == family.as_str()).flat_map(|slice| &slice.endpoints);
        let local = endpoints.filter(|endpoint| {
            let conditions = endpoint.conditions.as_ref();
            let is_ready = conditions.and_then(|conditions| conditions.ready).unwrap_or(true);
            is_ready && endpoint.node_name.as_deref() == Some(own)
        });
        let ips: BTreeSet<&str> =
            local.filter_map(|endpoint| endpoint.addresses.first()).map(String::as_str).collect();
        (is_local && is_balanced).then_some(Self { port, local_endpoints: ips.len() })
    }
}

/// How the proxy is. Cloning shares it.
#[derive(Clone, Debug)]
pub(crate) struct Health {
    clock: Clock,
    metrics: Arc<ProxyMetrics>,
    /// Those that are programmed.
    families: Arc<[Family]>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    last_updated: Option<Timestamp>,
    /// Since when something waits to be programmed.
    queued: Option<Timestamp>,
    is_node_eligible: bool,
    checks: BTreeMap<CheckKey, Check>,
}

impl State {
    fn is_healthy(&self, now: Timestamp) -> bool {
        let waits =
            self.queued.filter(|_| self.last_updated.is_some()).map(|since| now.duration_since(since));
        waits.is_none_or(|waited| Duration::try_from(waited).unwrap_or_default() < HEALTH_TIMEOUT)
    }

    /// What is answered at a path, to all who ask whether the proxy is fine.
    fn report(&self, path: &str, families: &[Family], now: Timestamp) -> Option<(StatusCode, Value)> {
        let is_healthy = self.is_healthy(now);
        let is_fine = match path {
            "/healthz" => is_healthy && self.is_node_eligible,
            "/livez" => is_healthy,
            _ => return None,
        };
        let zero = Timestamp::from_second(-62_135_596_800).unwrap_or(Timestamp::UNIX_EPOCH);
        let last = self.last_updated.unwrap_or(zero);
        let mut report = json!({
            "lastUpdated": if is_fine { now } else { last },
            "currentTime": now,
            "healthy": is_healthy,
        });
        if path == "/healthz" {
            report["nodeEligible"] = self.is_node_eligible.into();
        }
        if let Some(last) = self.last_updated {
            for family in families {
                report["status"][family.as_str()] = json!({"lastUpdated": last, "healthy": is_healthy});
            }
        }
        Some((if is_fine { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, report))
    }

    /// What is answered at a Service's port: the code, how many endpoints there are, and the same for people.
    fn check(&self, key: &CheckKey, now: Timestamp) -> Option<(StatusCode, usize, Value)> {
        let count = self.checks.get(key)?.local_endpoints;
        let is_healthy = self.is_healthy(now);
        let (namespace, name) = key.0.split_once('/')?;
        let report = json!({
            "service": {"namespace": namespace, "name": name},
            "localEndpoints": count,
            "serviceProxyHealthy": is_healthy,
        });
        let is_fine = count > 0 && is_healthy;
        Some((if is_fine { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, count, report))
    }
}

impl Health {
    pub(crate) fn new(clock: Clock, metrics: Arc<ProxyMetrics>, families: Vec<Family>) -> Self {
        Self { clock, metrics, families: families.into(), state: Arc::default() }
    }

    /// Those that are programmed.
    pub(crate) fn families(&self) -> &[Family] {
        &self.families
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something waits to be programmed.
    pub(crate) fn queue(&self) {
        let now = self.clock.now();
        self.metrics.queued(&self.families, now);
        self.state().queued.get_or_insert(now);
    }

    /// Everything has been programmed.
    pub(crate) fn update(&self, is_node_eligible: bool, checks: &BTreeMap<CheckKey, Check>) {
        let now = self.clock.now();
        self.metrics.programmed(&self.families, now);
        let mut state = self.state();
        (state.last_updated, state.queued, state.is_node_eligible) = (Some(now), None, is_node_eligible);
        if state.checks != *checks {
            state.checks.clone_from(checks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_change_that_waits_too_long_is_told_and_a_node_that_goes_is_not_dead() {
        for (what, last_updated, queued, is_node_eligible, healthz, livez) in [
            ("starting", None, Some(0), true, 200, 200),
            ("nothing to do", Some(0), None, true, 200, 200),
            ("waiting", Some(0), Some(41), true, 200, 200),
            ("waiting too long", Some(0), Some(40), true, 503, 503),
            ("a Node that goes", Some(0), None, false, 503, 200),
        ] {
            let state = State {
                last_updated: last_updated.map(at),
                queued: queued.map(at),
                is_node_eligible,
                checks: BTreeMap::new(),
            };
            let code = |path| state.report(path, &[Family::V4], at(100)).map(|(code, _)| code.as_u16());
            assert_eq!((code("/healthz"), code("/livez")), (Some(healthz), Some(livez)), "{what}");
            assert_eq!(code("/"), None, "{what}");
        }
    }

    #[test]
    fn each_family_is_reported() {
        let state = State { last_updated: Some(at(0)), is_node_eligible: true, ..State::default() };
        for (families, expect) in [
            (vec![Family::V4], json!(["IPv4"])),
            (vec![Family::V6], json!(["IPv6"])),
            (vec![Family::V4, Family::V6], json!(["IPv4", "IPv6"])),
        ] {
            let (_, report) = state.report("/healthz", &families, at(1)).unwrap();
            let names: Value = report["status"].as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(names, expect);
        }
    }

    #[test]
    fn a_service_is_asked_how_many_endpoints_are_here() {
        let service = |spec: &str| -> Service {
            let yaml = format!("{{metadata: {{namespace: a, name: b}}, spec: {{{spec}}}}}");
            serde_json::from_value(serde_saphyr::from_str(&yaml).unwrap()).unwrap()
        };
        let yaml = "
addressType: IPv4
endpoints:
- {addresses: [10.42.0.2], nodeName: here}
- {addresses: [10.42.0.2], nodeName: here, conditions: {ready: true}}
- {addresses: [10.42.0.3], nodeName: here, conditions: {ready: false, serving: true, terminating: true}}
- {addresses: [10.42.1.2], nodeName: there, conditions: {ready: true}}";
        let slice = |yaml: &str| -> EndpointSlice {
            serde_json::from_value(serde_saphyr::from_str(yaml).unwrap()).unwrap()
        };
        let other = slice(&yaml.replace("IPv4", "IPv6").replace("10.42.", "fd42::").replace("here", "there"));
        let slices = [slice(yaml), other];
        let balanced = "type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 32000";
        let expect = Some(Check { port: 32_000, local_endpoints: 1 });
        let of = |spec: &str, own: &str, family| Check::of(&service(spec), slices.iter(), own, family);
        assert_eq!(of(balanced, "here", Family::V4), expect);
        let none = Some(Check { port: 32_000, local_endpoints: 0 });
        assert_eq!(of(balanced, "here", Family::V6), none, "the other family's are on another Node");
        for other in [
            "type: LoadBalancer, healthCheckNodePort: 32000",
            "type: NodePort, externalTrafficPolicy: Local, healthCheckNodePort: 32000",
            "type: LoadBalancer, externalTrafficPolicy: Local",
            "type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 0",
        ] {
            assert_eq!(of(other, "here", Family::V4), None, "{other}");
        }
        let of = |count| State {
            last_updated: Some(at(0)),
            checks: [(("a/b".to_owned(), Family::V4), Check { port: 1, local_endpoints: count })].into(),
            ..State::default()
        };
        let code = |state: &State, key: &CheckKey| state.check(key, at(1)).map(|it| (it.0.as_u16(), it.1));
        let key = |name: &str, family| (name.to_owned(), family);
        let asked = key("a/b", Family::V4);
        assert_eq!(code(&of(2), &asked), Some((200, 2)));
        assert_eq!(code(&of(0), &asked), Some((503, 0)));
        assert_eq!(code(&of(2), &key("a/c", Family::V4)), None);
        assert_eq!(code(&of(2), &key("a/b", Family::V6)), None);
        let late = State { queued: Some(at(0)), ..of(2) };
        assert_eq!(late.check(&asked, at(99)).map(|(code, ..)| code.as_u16()), Some(503));
    }
}
