//! A reference to a Service in a configuration: of an APIService, a webhook, a conversion. Where it leads is looked up for
//! each connection, among the endpoints that are ready, so that the server needs no route to Services' own addresses.
//!
//! Who writes such configurations may make the API server speak to anybody: endpoints need not be Pods, as upstream. Its own
//! addresses and those that `dial` refuses to everybody are refused here too.
//!
//! Source: `ResolveEndpoint` and `ResolveCluster` of `k8s.io/apiserver/pkg/util/proxy`.

use serde_json::Value;

use crate::cache::CachedObject;
use crate::cluster::Cluster;
use crate::dial::Destination;
use crate::kinds::Kind;
use crate::status::{Error, Result, Subject};
use crate::tree::{items, text};

/// The port of a reference that names none. Source: `ServiceReference.port`.
const PORT_DEFAULT: u16 = 443;
/// What EndpointSlices are found by.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// What messages call a Service that is not there.
const SERVICE: Subject<'static> = Subject { group: "", resource: "service" };

/// A Service and one of its ports.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceReference {
    /// The namespace of the Service.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// A port of its `spec.ports`, by number.
    pub port: u16,
}

impl ServiceReference {
    /// The reference that an object has in a field such as `spec.service`.
    ///
    /// `None` unless it names a namespace and a Service.
    pub fn of(field: &Value) -> Option<Self> {
        let (namespace, name) = (text(field, "/namespace"), text(field, "/name"));
        let port = match field.get("port").filter(|port| !port.is_null()) {
            None => PORT_DEFAULT,
            Some(port) => port.as_u64().and_then(|port| u16::try_from(port).ok())?,
        };
        let is_named = !namespace.is_empty() && !name.is_empty();
        is_named.then(|| Self { namespace: namespace.to_owned(), name: name.to_owned(), port })
    }

    /// The name that is in the certificate of whoever serves it, and in `Host`.
    pub fn server_name(&self) -> String {
        format!("{}.{}.svc", self.name, self.namespace)
    }

    /// One of the ready endpoints, by chance; of the Service's main family, if it has any there.
    ///
    /// An ExternalName leads to what it names.
    ///
    /// # Errors
    /// 404 without the Service, 503 without the port or an endpoint, 400 for an address that the server does not
    /// connect to, 500 for a type of Service that leads nowhere.
    pub async fn resolve(&self, cluster: &Cluster) -> Result<Destination> {
        let service = self.service(cluster)?;
        match text(&service, "/spec/type") {
            "ExternalName" => {
                return Destination::find(cluster, text(&service, "/spec/externalName"), self.port).await;
            }
            "" | "ClusterIP" | "NodePort" | "LoadBalancer" => {}
            other => return Err(Error::internal(format!("unsupported service type {other:?}"))),
        }
        let port_name = self.port_name(&service).ok_or_else(|| {
            let (port, name) = (self.port, &self.name);
            Error::unavailable(format!("no service port {port} found for service {name:?}"))
        })?;
        let family = text(&service, "/spec/ipFamilies/0");
        let (mut main, mut others) = (Vec::new(), Vec::new());
        for slice in self.slices(cluster)? {
            let of_family = if text(&slice, "/addressType") == family { &mut main } else { &mut others };
            of_family.extend(endpoints(&slice, port_name));
        }
        let mut found = if main.is_empty() { others } else { main };
        if found.is_empty() {
            return Err(Error::unavailable(format!("no endpoints available for service {:?}", self.name)));
        }
        let chosen = usize::try_from(cluster.random.below(found.len() as u64)).unwrap_or(0);
        let (address, port) = found.swap_remove(chosen.min(found.len() - 1));
        Destination::of_address(cluster, &address, port).await
    }

    /// The Service.
    ///
    /// # Errors
    /// 404 if it is not there.
    pub fn service(&self, cluster: &Cluster) -> Result<Value> {
        let kind = cluster.kind("", "v1", "services").ok_or_else(Error::unknown_path)?;
        let found = kind.cache().get(&kind.key(&self.namespace, &self.name));
        found.map(|object| kind.value(&object)).ok_or_else(|| Error::not_found(SERVICE, &self.name))
    }

    /// The name of the Service's port; empty for one without.
    pub fn port_name<'a>(&self, service: &'a Value) -> Option<&'a str> {
        let is_it = |port: &&Value| port.get("port").and_then(Value::as_u64) == Some(self.port.into());
        items(service, "/spec/ports").find(is_it).map(|port| text(port, "/name"))
    }

    /// The Service's EndpointSlices.
    ///
    /// # Errors
    /// If they are not served.
    pub fn slices(&self, cluster: &Cluster) -> Result<Vec<Value>> {
        let kind = endpoint_slices(cluster)?;
        let objects = kind.cache().list(&kind.collection(&self.namespace), cluster.cache.revision()).objects;
        let is_its = |object: &CachedObject| object.labels().get(SERVICE_NAME) == Some(&self.name);
        Ok(objects.iter().filter(|object| is_its(object)).map(|object| kind.value(object)).collect())
    }
}

/// EndpointSlices, of which references are followed.
///
/// # Errors
/// If they are not served.
pub fn endpoint_slices(cluster: &Cluster) -> Result<&Kind> {
    cluster.kind("discovery.k8s.io", "v1", "endpointslices").ok_or_else(Error::unknown_path)
}

/// The ready endpoints of a slice for a port, each by the first of its addresses.
pub fn endpoints(slice: &Value, port_name: &str) -> Vec<(String, u16)> {
    let is_it = |port: &&Value| text(port, "/name") == port_name;
    let port = items(slice, "/ports").find(is_it).and_then(|port| port.get("port")).and_then(Value::as_u64);
    let Some(port) = port.and_then(|port| u16::try_from(port).ok()) else { return Vec::new() };
    let ready = items(slice, "/endpoints").filter(|e| e.pointer("/conditions/ready") != Some(&false.into()));
    let addresses = ready.map(|endpoint| text(endpoint, "/addresses/0")).filter(|text| !text.is_empty());
    addresses.map(|address| (address.to_owned(), port)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_reference_names_a_service_and_a_port() {
        let check = |field: Value, expect: Option<(&str, u16)>| {
            let found = ServiceReference::of(&field);
            let found = found.map(|reference| (reference.server_name(), reference.port));
            assert_eq!(found, expect.map(|(name, port)| (name.to_owned(), port)), "{field}");
        };
        check(json!({"namespace": "a", "name": "b"}), Some(("b.a.svc", 443)));
        check(json!({"namespace": "a", "name": "b", "port": null}), Some(("b.a.svc", 443)));
        check(json!({"namespace": "a", "name": "b", "port": 8443}), Some(("b.a.svc", 8443)));
        for field in [
            json!(null),
            json!({}),
            json!({"namespace": "a"}),
            json!({"namespace": "", "name": "b"}),
            json!({"namespace": "a", "name": "b", "port": 65536}),
            json!({"namespace": "a", "name": "b", "port": -1}),
            json!({"namespace": "a", "name": "b", "port": "https"}),
        ] {
            check(field, None);
        }
    }

    #[test]
    fn only_what_is_ready_and_has_the_port_is_an_endpoint() {
        let slice = json!({
            "ports": [{"name": "metrics", "port": 1}, {"name": "https", "port": 8443}, {"name": "none"}],
            "endpoints": [
                {"addresses": ["10.0.0.1"], "conditions": {"ready": true}},
                {"addresses": ["10.0.0.2"], "conditions": {"ready": false}},
                {"addresses": ["10.0.0.3", "10.0.0.9"]},
                {"addresses": []},
            ],
        });
        let both = [("10.0.0.1".to_owned(), 8443), ("10.0.0.3".to_owned(), 8443)];
        assert_eq!(endpoints(&slice, "https"), both);
        assert_eq!(endpoints(&slice, "none"), []);
        assert_eq!(endpoints(&slice, ""), []);
        let unnamed =
            json!({"ports": [{"name": "", "port": 443}], "endpoints": [{"addresses": ["10.0.0.1"]}]});
        assert_eq!(endpoints(&unnamed, ""), [("10.0.0.1".to_owned(), 443)]);
    }
}
