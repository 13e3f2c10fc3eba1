//! A Node opens its tunnel here, and who may know is told which ones stand.
//!
//! Whose a tunnel is the certificate says that the connection was made with, and nothing that is said on it: no header, no
//! token, nobody who acts as somebody else. It ends with what proves that: the certificate, and the Node's object.
//!
//! Source: `pkg/daemons/control/tunnel.go` of k3s, and konnectivity's agents.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use auth::UserInfo;
use base::{Clock, Tasks};
use bytes::Bytes;
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use machinery::net::Cidr;
use serde_json::{Value, json};
use tracing::{debug, info};
use tunnel::Tunnel;

use crate::api::Api;
use crate::cache::{CachedObject, EventType, IndexKey, ResourceCache};
use crate::respond::{Body, full, json as answer_json};
use crate::security::Peer;
use crate::status::{Error, Result};
use crate::tunnels::{EgressSelectorMode, Tunnels};

/// How long the switch may take.
const SWITCH_MAX: Duration = Duration::from_secs(10);
/// How long is waited at most before the clock is looked at again.
const LOOK_EVERY: Duration = Duration::from_secs(3600);

/// A tunnel that is asked for.
struct Offer {
    node: String,
    from: Option<IpAddr>,
    /// When its certificate ends, in seconds.
    until: Option<i64>,
}

/// Takes a Node's tunnel: switches protocols.
///
/// # Errors
/// 404 where no tunnels are taken, 403 unless the certificate is a Node's, 400 without the right protocol.
pub(crate) async fn open(api: &Api, mut http: Request<Body>, user: &UserInfo) -> Result<Response<Body>> {
    if api.tunnels.mode() == EgressSelectorMode::Disabled {
        return Err(Error::unknown_path());
    }
    if http.method() != Method::GET {
        return Err(Error::method_not_allowed());
    }
    let peer = http.extensions().get::<Arc<Peer>>().cloned();
    let offer = offer(peer.as_deref(), user)?;
    if !is_wanted(http.headers()) {
        return Err(Error::bad_request(format!("Upgrade: {} required", tunnel::PROTOCOL)));
    }
    api.cache.fresh().await?;
    let kind = api.kind("", "v1", "nodes").ok_or_else(Error::unknown_path)?;
    let (nodes, key) = (Arc::clone(kind.cache()), kind.key("", &offer.node));
    if nodes.get(&key).is_none() {
        return Err(Error::not_found(kind.subject(), &offer.node));
    }
    let held = Held {
        tunnels: Arc::clone(&api.tunnels),
        tasks: api.serving.clone(),
        clock: api.clock.clone(),
        nodes,
        key,
        offer,
    };
    let switched = hyper::upgrade::on(&mut http);
    api.serving.spawn("tunnel", held.hold(switched));
    let mut response = Response::new(full(Bytes::new()));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    response.headers_mut().insert(UPGRADE, HeaderValue::from_static(tunnel::PROTOCOL));
    Ok(response)
}

/// Which tunnels stand at this server.
pub(crate) fn list(api: &Api) -> Response<Body> {
    answer_json(StatusCode::OK, &json!({ "mode": api.tunnels.mode(), "tunnels": api.tunnels.list() }))
}

/// Whose tunnel it is that `user` asks for over a connection of `peer`.
fn offer(peer: Option<&Peer>, user: &UserInfo) -> Result<Offer> {
    let refused = || Error::forbidden_path("only a Node opens a tunnel, by its own certificate");
    let peer = peer.filter(|peer| peer.proxy.is_none()).ok_or_else(refused)?;
    let certified = peer.user.as_ref().filter(|certified| certified.name == user.name).ok_or_else(refused)?;
    let node = certified.name.strip_prefix(auth::NODE_USER_PREFIX).filter(|_| certified.is_in(auth::NODES));
    let node = node.filter(|node| !node.is_empty()).ok_or_else(refused)?.to_owned();
    Ok(Offer { node, from: peer.origin(), until: peer.holds_until })
}

fn is_wanted(headers: &HeaderMap) -> bool {
    let has = |name, wanted: &str| {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|value| value.trim().eq_ignore_ascii_case(wanted))
    };
    has(CONNECTION, "upgrade") && has(UPGRADE, tunnel::PROTOCOL)
}

/// A tunnel, and what it stands on.
struct Held {
    tunnels: Arc<Tunnels>,
    tasks: Tasks,
    clock: Clock,
    nodes: Arc<ResourceCache>,
    key: String,
    offer: Offer,
}

impl Held {
    /// Holds the tunnel for as long as it may stand.
    async fn hold(self, switched: OnUpgrade) {
        let Offer { node, from, until } = &self.offer;
        let stream = match tokio::time::timeout(SWITCH_MAX, switched).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(failure)) => return debug!(node, %failure, "a tunnel was not switched to"),
            Err(_) => return debug!(node, "a tunnel was not switched to in time"),
        };
        let (tunnel, carrying) = match Tunnel::over(stream, &self.tasks).await {
            Ok(begun) => begun,
            Err(failure) => return debug!(node, %failure, "a tunnel broke at once"),
        };
        let mut registration = self.tunnels.begin(node, tunnel, *from, self.clock.now());
        // When a Node goes its tunnel is ended; this one may not have been known then.
        if self.nodes.get(&self.key).is_none() {
            return debug!(node, "a tunnel's node is gone");
        }
        info!(node, from = ?from, "a node's tunnel stands");
        let why = tokio::select! {
            ended = carrying => ended.map_or_else(|failure| reason(&failure), |()| "it was closed".to_owned()),
            ended = registration.ends() => ended.to_string(),
            () = over(&self.clock, *until) => "the node's certificate has ended".to_owned(),
        };
        info!(node, why, "a node's tunnel has ended");
    }
}

/// An error and what is behind it.
fn reason(failure: &hyper::Error) -> String {
    let source = std::error::Error::source(failure);
    source.map_or_else(|| failure.to_string(), |source| format!("{failure}: {source}"))
}

/// Ends when the time has come, which the clock says, though it may be set.
async fn over(clock: &Clock, until: Option<i64>) {
    let Some(until) = until else { return std::future::pending().await };
    loop {
        let left = until.saturating_sub(clock.now().as_second());
        let Ok(left @ 1..) = u64::try_from(left) else { return };
        tokio::time::sleep(Duration::from_secs(left).min(LOOK_EVERY)).await;
    }
}

/// Keeps what tunnels are for as Nodes come and go. Never ends.
pub(crate) async fn follow(api: &Api) {
    let Some(nodes) = api.kind("", "v1", "nodes") else { return };
    loop {
        let revision = api.cache.revision();
        let mut changes = nodes.cache().watch(revision, IndexKey::Everything);
        let all = nodes.cache().list(nodes.prefix(), revision).objects;
        api.tunnels.learn_all(all.iter().map(|node| (node.name().to_owned(), ranges(node))).collect());
        // What falls behind reads all again.
        while let Ok(events) = changes.next().await {
            for event in events {
                match event.event_type {
                    EventType::Deleted => api.tunnels.forget(event.object.name()),
                    _ => api.tunnels.set_discovery(event.object.name(), ranges(&event.object)),
                }
            }
        }
    }
}

fn ranges(node: &CachedObject) -> Vec<Cidr> {
    let found = node.part(&["/spec/podCIDRs"]);
    let texts = found.pointer("/spec/podCIDRs").and_then(Value::as_array).into_iter().flatten();
    texts.filter_map(|text| text.as_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_is_the_nodes_whose_certificate_is_shown() {
        let of = |name: &str, groups: &[&str]| UserInfo::new(name, groups);
        let node = || of("system:node:a", &["system:nodes"]);
        let peer = |user: Option<UserInfo>, proxy: Option<&str>| Peer {
            user,
            proxy: proxy.map(str::to_owned),
            ..Peer::default()
        };
        let check = |name: &str, peer: Option<Peer>, user: UserInfo, expect: Option<&str>| {
            let found = offer(peer.as_ref(), &user).ok().map(|offer| offer.node);
            assert_eq!(found.as_deref(), expect, "{name}");
        };
        check("its own", Some(peer(Some(node()), None)), node(), Some("a"));
        check("in this process", None, node(), None);
        check("by a token", Some(peer(None, None)), node(), None);
        check("by a front proxy", Some(peer(Some(node()), Some("proxy"))), node(), None);
        let other = of("system:node:b", &["system:nodes"]);
        check("as another", Some(peer(Some(node()), None)), other.clone(), None);
        let admin = of("admin", &["system:masters"]);
        check("an administrator as a node", Some(peer(Some(admin.clone()), None)), other, None);
        check("an administrator", Some(peer(Some(admin.clone()), None)), admin, None);
        let stray = of("system:node:a", &["system:masters"]);
        check("outside the group", Some(peer(Some(stray.clone()), None)), stray, None);
        let nameless = of("system:node:", &["system:nodes"]);
        check("without a name", Some(peer(Some(nameless.clone()), None)), nameless, None);
    }

    #[test]
    fn the_protocol_is_asked_for_in_words() {
        let check = |connection: &str, upgrade: &str, expect: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(CONNECTION, connection.parse().unwrap());
            headers.insert(UPGRADE, upgrade.parse().unwrap());
            assert_eq!(is_wanted(&headers), expect, "{connection} {upgrade}");
        };
        check("Upgrade", tunnel::PROTOCOL, true);
        check("keep-alive, upgrade", "knarr-tunnel", true);
        check("Upgrade", "websocket", false);
        check("keep-alive", tunnel::PROTOCOL, false);
        assert!(!is_wanted(&HeaderMap::new()));
    }
}
