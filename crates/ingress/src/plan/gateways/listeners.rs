//! The listeners of Gateways: where they listen, what they show, whose routes they take.

use std::collections::BTreeMap;
use std::sync::Arc;

use controller::selector;
use k8s_openapi::api::core::v1::{Namespace, Secret};

use super::grants::{Grants, Named};
use super::kind::RouteKind;
use crate::gateway::{GROUP, Gateway, GatewayListener, ObjectReference, RouteGroupKind};
use crate::host::Host;
use crate::plan::report::{Condition, ListenerReport, Refusal};
use crate::plan::snapshot::Snapshot;
use crate::scheme::Scheme;
use crate::table::{Entrance, Listener};

/// A listener, as it has come out.
pub(super) struct Site<'a> {
    pub(super) spec: &'a GatewayListener,
    pub(super) scheme: Option<Scheme>,
    pub(super) host: Host,
    /// Where it listens, unless something is wrong with that.
    pub(super) place: Result<Listener, Refusal>,
    pub(super) conflict: Result<(), Refusal>,
    kinds: Vec<RouteKind>,
    refs: Result<(), Refusal>,
    /// Whose certificates are shown.
    pub(super) shown: Vec<Arc<Secret>>,
    /// Routes that were let in.
    pub(super) attached: usize,
}

impl Site<'_> {
    /// Whether it has its part of the requests, be they led on or not.
    pub(super) fn listener(&self) -> Option<&Listener> {
        self.place.as_ref().ok().filter(|_| self.conflict.is_ok())
    }

    /// Whether requests are led on from here.
    pub(super) fn is_served(&self) -> bool {
        let has_certificate = self.scheme == Some(Scheme::Http) || !self.shown.is_empty();
        self.listener().is_some() && has_certificate
    }

    /// Whether it takes a route of this kind.
    pub(super) fn takes(&self, kind: RouteKind) -> bool {
        self.kinds.contains(&kind)
    }

    /// Whether it takes routes of a namespace.
    pub(super) fn takes_from(&self, namespace: &str, own: &str, namespaces: &Namespaces) -> bool {
        let allowed = self.spec.allowed_routes.as_ref().and_then(|allowed| allowed.namespaces.as_ref());
        match allowed.and_then(|allowed| allowed.from.as_deref()).unwrap_or("Same") {
            "All" => true,
            "Same" => namespace == own,
            "Selector" => {
                let labels =
                    namespaces.get(namespace).and_then(|namespace| namespace.metadata.labels.as_ref());
                let selector = allowed.and_then(|allowed| allowed.selector.as_ref());
                selector.is_some_and(|selector| selector::selects(selector, labels))
            }
            _ => false,
        }
    }

    pub(super) fn report(&self) -> ListenerReport {
        let accepted = match (&self.place, &self.conflict) {
            (Err(refusal), _) | (Ok(_), Err(refusal)) => Err(refusal.clone()),
            _ => Ok(()),
        };
        let conflicted = match &self.conflict {
            Ok(()) => Condition::no("Conflicted", "NoConflicts", ""),
            Err(Refusal { reason, message }) => {
                Condition { message: message.clone(), ..Condition::yes("Conflicted", reason) }
            }
        };
        let programmed = if self.is_served() {
            Condition::yes("Programmed", "Programmed")
        } else {
            Condition::no("Programmed", "Invalid", "requests are not led on from here")
        };
        ListenerReport {
            name: self.spec.name.clone(),
            kinds: self.kinds.iter().map(|kind| kind.as_str()).collect(),
            attached: self.attached,
            conditions: vec![
                Condition::of("Accepted", "Accepted", &accepted),
                programmed,
                Condition::of("ResolvedRefs", "ResolvedRefs", &self.refs),
                conflicted,
            ],
        }
    }
}

/// By name.
pub(super) type Namespaces = BTreeMap<String, Arc<Namespace>>;

/// What listeners are found in.
pub(super) struct Sites<'a> {
    snapshot: &'a Snapshot,
    grants: &'a Grants<'a>,
    /// Who speaks how on a port: the oldest Gateway says.
    schemes: BTreeMap<Entrance, Scheme>,
}

impl<'a> Sites<'a> {
    pub(super) fn of(snapshot: &'a Snapshot, grants: &'a Grants<'a>) -> Self {
        Self { snapshot, grants, schemes: BTreeMap::new() }
    }

    /// The listeners of a Gateway, in its order. Older Gateways are to be asked about first.
    pub(super) fn of_gateway(&mut self, gateway: &'a Gateway) -> Vec<Site<'a>> {
        let namespace = gateway.metadata.namespace.as_deref().unwrap_or_default();
        let spec = &gateway.spec;
        let looks_at_clients = spec.tls.as_ref().is_some_and(|tls| tls.frontend.is_some());
        let mut sites: Vec<_> =
            spec.listeners.iter().map(|spec| self.site(spec, namespace, looks_at_clients)).collect();
        mark_conflicts(&mut sites);
        if let Err(refusal) = addresses(gateway) {
            sites.iter_mut().for_each(|site| site.place = Err(refusal.clone()));
        }
        for site in &mut sites {
            let Some((entrance, scheme)) = site.listener().map(|found| found.entrance).zip(site.scheme)
            else {
                continue;
            };
            if *self.schemes.entry(entrance).or_insert(scheme) != scheme {
                let message = "another Gateway has the port with another protocol";
                site.place = Err(Refusal::new("PortUnavailable", message));
            }
        }
        sites
    }

    fn site(&self, spec: &'a GatewayListener, namespace: &str, looks_at_clients: bool) -> Site<'a> {
        let host = Host::of_gateway(spec.hostname.as_deref().unwrap_or_default());
        let scheme = match spec.protocol.as_str() {
            "HTTP" => Some(Scheme::Http),
            "HTTPS" => Some(Scheme::Https),
            _ => None,
        };
        let entrance = self.entrance(spec, scheme, looks_at_clients);
        let place = entrance.map(|entrance| Listener { entrance, host: host.clone() });
        let (kinds, kinds_found) = if scheme.is_some() { kinds(spec) } else { (Vec::new(), Ok(())) };
        let (shown, certificates) = match scheme {
            Some(Scheme::Https) => self.certificates(spec, namespace),
            _ => (Vec::new(), Ok(())),
        };
        let refs = kinds_found.and(certificates);
        Site { spec, scheme, host, place, conflict: Ok(()), kinds, refs, shown, attached: 0 }
    }

    fn entrance(
        &self,
        spec: &GatewayListener,
        scheme: Option<Scheme>,
        looks_at_clients: bool,
    ) -> Result<Entrance, Refusal> {
        let Some(scheme) = scheme else {
            let message = format!("protocol {} is not served: it must be HTTP or HTTPS", spec.protocol);
            return Err(Refusal::new("UnsupportedProtocol", message));
        };
        let mode = spec.tls.as_ref().and_then(|tls| tls.mode.as_deref()).unwrap_or("Terminate");
        if scheme == Scheme::Https && mode != "Terminate" {
            let message = format!("TLS mode {mode} is not served: it must be Terminate");
            return Err(Refusal::new("UnsupportedProtocol", message));
        }
        let looks =
            looks_at_clients || spec.tls.as_ref().is_some_and(|tls| tls.frontend_validation.is_some());
        if scheme == Scheme::Https && looks {
            // Whoever asks for it must not be served without.
            let message = "certificates of clients are not looked at here: nothing is served";
            return Err(Refusal::new("UnsupportedValue", message));
        }
        let entrance = self.snapshot.ports.entrance(spec.port, scheme);
        entrance.map_err(|why| Refusal::new("PortUnavailable", format!("port {} {why}", spec.port)))
    }

    /// The Secrets whose certificates can be shown, and the first thing that is wrong with others.
    fn certificates(
        &self,
        spec: &GatewayListener,
        namespace: &str,
    ) -> (Vec<Arc<Secret>>, Result<(), Refusal>) {
        let named = spec.tls.as_ref().map(|tls| tls.certificate_refs.as_slice()).unwrap_or_default();
        let (mut shown, mut outcome) = (Vec::new(), Ok(()));
        if named.is_empty() {
            outcome = Err(Refusal::new("InvalidCertificateRef", "tls.certificateRefs must name a Secret"));
        }
        for reference in named {
            match self.certificate(reference, namespace) {
                Ok(secret) => shown.push(secret),
                Err(refusal) => outcome = outcome.and(Err(refusal)),
            }
        }
        (shown, outcome)
    }

    fn certificate(&self, reference: &ObjectReference, namespace: &str) -> Result<Arc<Secret>, Refusal> {
        let invalid = |message: String| Refusal::new("InvalidCertificateRef", message);
        let kind = reference.kind.as_deref().unwrap_or("Secret");
        if kind != "Secret" || reference.group.as_deref().is_some_and(|group| !group.is_empty()) {
            return Err(invalid(format!("{kind} {} must be a Secret", reference.name)));
        }
        let of = reference.namespace.as_deref().unwrap_or(namespace);
        let named = Named { kind, namespace: of, name: &reference.name };
        let place = format!("{of}/{}", reference.name);
        if !self.grants.allow("Gateway", namespace, &named) {
            // Whether it is there is nobody's to know.
            let message = format!("no ReferenceGrant allows Gateways of {namespace} to name Secret {place}");
            return Err(Refusal::new("RefNotPermitted", message));
        }
        let Some(secret) = self.snapshot.secrets.get(&place) else {
            return Err(invalid(format!("there is no Secret {place} of type kubernetes.io/tls")));
        };
        self.snapshot
            .checked
            .of(secret)
            .map_err(|why| invalid(format!("Secret {place} is not usable: {why}")))?;
        Ok(Arc::clone(secret))
    }
}

/// Whether a Gateway asks for addresses that it can have as far as their type goes.
pub(super) fn addresses(gateway: &Gateway) -> Result<(), Refusal> {
    let odd = |kind: &&str| *kind != "IPAddress";
    let mut kinds = gateway.spec.addresses.iter().filter_map(|address| address.r#type.as_deref());
    match kinds.find(odd) {
        None => Ok(()),
        Some(kind) => {
            let message = format!("addresses of type {kind} cannot be asked for");
            Err(Refusal::new("UnsupportedAddress", message))
        }
    }
}

/// Which kinds of routes a listener takes; what else it names is not served.
fn kinds(spec: &GatewayListener) -> (Vec<RouteKind>, Result<(), Refusal>) {
    let named = spec.allowed_routes.as_ref().map(|allowed| allowed.kinds.as_slice()).unwrap_or_default();
    if named.is_empty() {
        return (RouteKind::ALL.into(), Ok(()));
    }
    let (mut kinds, mut outcome) = (Vec::new(), Ok(()));
    for RouteGroupKind { group, kind } in named {
        let is_ours = group.as_deref().is_none_or(|group| group == GROUP);
        match RouteKind::ALL.into_iter().find(|known| is_ours && known.as_str() == kind) {
            Some(kind) if kinds.contains(&kind) => {}
            Some(kind) => kinds.push(kind),
            None => {
                let group = group.as_deref().unwrap_or(GROUP);
                let message = format!("{kind} of {group} cannot attach to listeners of {}", spec.protocol);
                outcome = Err(Refusal::new("InvalidRouteKinds", message));
            }
        }
    }
    (kinds, outcome)
}

/// Of listeners of one Gateway that are not to be told from each other none is served.
fn mark_conflicts(sites: &mut [Site<'_>]) {
    let mut ports: BTreeMap<i64, Vec<Scheme>> = BTreeMap::new();
    let mut places: BTreeMap<(i64, Host), usize> = BTreeMap::new();
    for site in sites.iter() {
        let Some(scheme) = site.scheme else { continue };
        let schemes = ports.entry(site.spec.port).or_default();
        if !schemes.contains(&scheme) {
            schemes.push(scheme);
        }
        *places.entry((site.spec.port, site.host.clone())).or_default() += 1;
    }
    for site in sites.iter_mut().filter(|site| site.scheme.is_some()) {
        let port = site.spec.port;
        if ports.get(&port).is_some_and(|schemes| schemes.len() > 1) {
            let message = format!("listeners with port {port} must have the same protocol");
            site.conflict = Err(Refusal::new("ProtocolConflict", message));
        } else if places.get(&(port, site.host.clone())).is_some_and(|count| *count > 1) {
            let message = format!("listeners with port {port} must differ in their hostname");
            site.conflict = Err(Refusal::new("HostnameConflict", message));
        }
    }
}
