//! The members of the cluster: which one is asked, and what happens when it does not answer.
//!
//! All requests go to one member until it fails; then the next one is asked. A request that may be sent twice without
//! harm is sent again; whoever sends one that changes something finds out by [`Attempt::is_repeated`] that an earlier
//! sending may have taken effect.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base::{Backoff, Random};
use prost::Message;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, IntoRequest, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::{ConnectError, Options, api};
use crate::StoreError;

/// How long one member gets to answer one request.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long all members together get, tries again included.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a member gets to take a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How often a connection is probed, and how long the answer may take, before it counts as dead.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// The largest answer: etcd's request limit of 1.5 MiB times a page, with room.
const MESSAGE_BYTES_MAX: usize = 512 << 20;
/// The oldest etcd that has what the store needs (`Txn`, `prev_kv`, leases, progress on all watches).
const OLDEST: Version = Version(3, 4, 0);

/// The cluster.
pub(super) struct Members {
    channels: Vec<Channel>,
    current: AtomicUsize,
    random: Random,
}

/// An answer, and whether an earlier sending of the same request may have been carried out.
pub(super) struct Attempt<T> {
    pub(super) result: Result<T, Status>,
    pub(super) is_repeated: bool,
}

/// etcd's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(pub(super) u64, pub(super) u64, pub(super) u64);

impl Version {
    /// Reads `3.5.13`, also with a suffix.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let numbers = text.split(['-', '+']).next()?;
        let mut parts = numbers.split('.').map(|part| part.parse().ok());
        Some(Self(parts.next()??, parts.next()??, parts.next().flatten().unwrap_or(0)))
    }

    /// Whether a progress notification that was asked for never overtakes events.
    ///
    /// Source: etcd issue 15220, fixed in 3.4.31 and 3.5.13; upstream's feature checker draws the same line.
    pub(super) fn has_reliable_progress(self) -> bool {
        match (self.0, self.1) {
            (3, 4) => self.2 >= 31,
            (3, 5) => self.2 >= 13,
            _ => self > Self(3, 5, 0),
        }
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

impl Members {
    /// Reads the endpoints; connections are made when they are needed.
    pub(super) fn new(options: &Options) -> Result<Self, ConnectError> {
        if options.endpoints.is_empty() {
            return Err(ConnectError::NoEndpoint);
        }
        let channels = options.endpoints.iter().map(|url| channel(url, options)).collect::<Result<_, _>>()?;
        Ok(Self { channels, current: AtomicUsize::new(0), random: options.random.clone() })
    }

    /// The member that is asked now: its number and its channel.
    pub(super) fn current(&self) -> (usize, Channel) {
        let member = self.current.load(Ordering::Relaxed) % self.channels.len();
        // Not empty, and `member` is below its length.
        (member, self.channels[member].clone())
    }

    /// Goes on to the next member, unless somebody else has done so already.
    pub(super) fn leave(&self, member: usize) {
        let next = (member + 1) % self.channels.len();
        // Losing the race means that another caller has left the same member.
        self.current.compare_exchange(member, next, Ordering::Relaxed, Ordering::Relaxed).ok();
    }

    /// Asks until a member answers; errors that say that the member is not well are not answers.
    pub(super) async fn ask<Q, A>(&self, path: &'static str, request: &Q) -> Attempt<A>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        self.ask_for(REQUEST_TIMEOUT, path, request).await
    }

    /// Asks every member at least once, and goes on for `timeout`.
    async fn ask_for<Q, A>(&self, timeout: Duration, path: &'static str, request: &Q) -> Attempt<A>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let deadline = tokio::time::Instant::now() + timeout;
        let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1), 0.5);
        let (mut failures, mut is_repeated) = (0, false);
        loop {
            let (member, channel) = self.current();
            let result = unary(channel, path, request.clone()).await;
            let Err(status) = &result else { return Attempt { result, is_repeated } };
            failures += 1;
            let is_over = failures >= self.channels.len() && tokio::time::Instant::now() >= deadline;
            if !is_unwell(status) || is_over {
                return Attempt { result, is_repeated };
            }
            tracing::debug!(path, member, %status, "an etcd member did not answer");
            is_repeated = true;
            self.leave(member);
            if failures % self.channels.len() == 0 {
                tokio::time::sleep(backoff.next(&self.random)).await;
            }
        }
    }

    /// Opens a watch stream on the member that is asked now.
    pub(super) async fn watch(
        &self,
        requests: impl futures::Stream<Item = api::WatchRequest> + Send + 'static,
    ) -> Result<(usize, Streaming<api::WatchResponse>), (usize, Status)> {
        let (member, channel) = self.current();
        let open = async {
            let mut grpc = grpc(channel);
            ready(&mut grpc).await?;
            let mut request = Request::new(requests);
            // A member that has lost its leader ends the watch instead of leaving us without events.
            request.metadata_mut().insert("hasleader", tonic::metadata::MetadataValue::from_static("true"));
            let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
            let codec = ProstCodec::<api::WatchRequest, api::WatchResponse>::default();
            grpc.streaming(request, path, codec).await.map(tonic::Response::into_inner)
        };
        match tokio::time::timeout(ATTEMPT_TIMEOUT, open).await {
            Ok(Ok(stream)) => Ok((member, stream)),
            Ok(Err(status)) => Err((member, status)),
            Err(_) => Err((member, Status::deadline_exceeded("the watch was not opened in time"))),
        }
    }

    /// The version of the member that is asked now.
    pub(super) async fn version(&self) -> Result<Version, ConnectError> {
        let ask = self.ask_for(Duration::ZERO, "/etcdserverpb.Maintenance/Status", &api::StatusRequest {});
        let status: api::StatusResponse =
            ask.await.result.map_err(|s| ConnectError::Unreachable(text(&s)))?;
        let version = Version::parse(&status.version)
            .ok_or_else(|| ConnectError::Unreachable(format!("it says version {:?}", status.version)))?;
        if version < OLDEST {
            return Err(ConnectError::TooOld { found: version.to_string(), oldest: OLDEST.to_string() });
        }
        Ok(version)
    }
}

fn channel(url: &str, options: &Options) -> Result<Channel, ConnectError> {
    let broken = |why: String| ConnectError::Endpoint { url: url.to_owned(), why };
    let mut endpoint = Endpoint::from_shared(url.to_owned())
        .map_err(|error| broken(error.to_string()))?
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true);
    match endpoint.uri().scheme_str() {
        Some("http") => {}
        Some("https") => {
            let mut tls = ClientTlsConfig::new();
            if let Some(authority) = &options.authority_pem {
                tls = tls.ca_certificate(Certificate::from_pem(authority));
            }
            if let Some((certificate, key)) = &options.identity_pem {
                tls = tls.identity(Identity::from_pem(certificate, key));
            }
            endpoint = endpoint.tls_config(tls).map_err(|error| broken(error.to_string()))?;
        }
        _ => return Err(broken("it must begin with http:// or https://".to_owned())),
    }
    Ok(endpoint.connect_lazy())
}

fn grpc(channel: Channel) -> Grpc<Channel> {
    Grpc::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX)
}

async fn ready(grpc: &mut Grpc<Channel>) -> Result<(), Status> {
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))
}

async fn unary<Q, A>(channel: Channel, path: &'static str, request: Q) -> Result<A, Status>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let call = async {
        let mut grpc = grpc(channel);
        ready(&mut grpc).await?;
        let codec = ProstCodec::<Q, A>::default();
        grpc.unary(request.into_request(), PathAndQuery::from_static(path), codec).await
    };
    match tokio::time::timeout(ATTEMPT_TIMEOUT, call).await {
        Ok(answer) => answer.map(tonic::Response::into_inner),
        Err(_) => Err(Status::deadline_exceeded("the member did not answer in time")),
    }
}

/// Whether another member may do better: transport errors, no leader, a leader that changed, timeouts.
fn is_unwell(status: &Status) -> bool {
    match status.code() {
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => true,
        // Transport errors of a connection that broke under way; etcd's own unknown errors are named.
        Code::Unknown | Code::Internal => !status.message().starts_with("etcdserver"),
        _ => false,
    }
}

/// A status as the log and users see it.
pub(super) fn text(status: &Status) -> String {
    format!("{}: {}", status.code(), status.message())
}

/// What an error of etcd means to callers. Source: etcd's `rpctypes/error.go`.
pub(super) fn failure(status: &Status) -> StoreError {
    let message = status.message();
    if message.contains("database space exceeded") {
        return StoreError::NoSpace;
    }
    if message.contains("request is too large") || message.contains("larger than max") {
        return StoreError::TooLarge;
    }
    if is_unwell(status) || status.code() == Code::ResourceExhausted {
        return StoreError::Unavailable(text(status));
    }
    StoreError::Failed(text(status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_compared() {
        let rows = [
            ("3.4.23", Some(Version(3, 4, 23)), false),
            ("3.4.31", Some(Version(3, 4, 31)), true),
            ("3.5.12+debian", Some(Version(3, 5, 12)), false),
            ("3.5.13-rc.1", Some(Version(3, 5, 13)), true),
            ("3.6.0", Some(Version(3, 6, 0)), true),
            ("4.0", Some(Version(4, 0, 0)), true),
            ("three", None, false),
        ];
        for (text, version, is_reliable) in rows {
            assert_eq!(Version::parse(text), version, "{text}");
            assert_eq!(version.is_some_and(Version::has_reliable_progress), is_reliable, "{text}");
        }
    }

    /// Source: etcd's `api/v3rpc/rpctypes/error.go`.
    #[test]
    fn errors_of_etcd_mean_what_callers_know() {
        let told = |error: StoreError| match error {
            StoreError::NoSpace => "no space",
            StoreError::TooLarge => "too large",
            StoreError::Unavailable(_) => "unavailable",
            StoreError::Failed(_) => "failed",
            _ => "another",
        };
        for (code, message, expect) in [
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", "no space"),
            (Code::InvalidArgument, "etcdserver: request is too large", "too large"),
            (Code::ResourceExhausted, "grpc: received message larger than max (2 vs. 1)", "too large"),
            (Code::ResourceExhausted, "etcdserver: too many requests", "unavailable"),
            (Code::Unavailable, "etcdserver: leader changed", "unavailable"),
            (Code::Unavailable, "etcdserver: no leader", "unavailable"),
            (Code::Unavailable, "etcdserver: request timed out", "unavailable"),
            (Code::Unavailable, "etcdserver: server stopped", "unavailable"),
            (Code::Unavailable, "etcdserver: unhealthy cluster", "unavailable"),
            (Code::Unavailable, "", "unavailable"),
            (Code::DeadlineExceeded, "context deadline exceeded", "unavailable"),
            (Code::DataLoss, "etcdserver: corrupt cluster", "failed"),
            (Code::InvalidArgument, "etcdserver: key is not provided", "failed"),
            (Code::PermissionDenied, "etcdserver: permission denied", "failed"),
            (Code::Unauthenticated, "etcdserver: invalid auth token", "failed"),
            (Code::FailedPrecondition, "etcdserver: user name is empty", "failed"),
        ] {
            let status = Status::new(code, message);
            assert_eq!(told(failure(&status)), expect, "{code:?} {message}");
        }
    }

    #[test]
    fn versions_that_are_none_are_not_taken_for_one() {
        for text in
            ["", ".", "3", "3.", ".5", "v3.5.0", "3.x.1", "-3.5.1", "3.5.", "3,5", "99999999999999999999.1"]
        {
            let version = Version::parse(text);
            assert!(version.is_none() || text == "3.5.", "{text:?}: {version:?}");
        }
        assert_eq!(Version::parse("3.5.1.9"), Some(Version(3, 5, 1)));
        assert_eq!(Version(3, 10, 2).to_string(), "3.10.2");
        // Source: `TestSupports` of upstream's etcd feature checker.
        for (version, is_reliable) in [
            (Version(3, 4, 30), false),
            (Version(3, 4, 31), true),
            (Version(3, 4, 32), true),
            (Version(3, 5, 0), false),
            (Version(3, 5, 12), false),
            (Version(3, 5, 13), true),
            (Version(3, 5, 14), true),
            (Version(3, 6, 0), true),
            (Version(3, 3, 99), false),
            (Version(2, 9, 9), false),
            (Version(4, 0, 0), true),
        ] {
            assert_eq!(version.has_reliable_progress(), is_reliable, "{version}");
        }
        assert!(Version(3, 3, 99) < OLDEST && Version(3, 4, 0) >= OLDEST);
    }

    #[test]
    fn what_says_that_a_member_is_unwell_sends_us_to_the_next() {
        let rows = [
            (Status::unavailable("etcdserver: leader changed"), true),
            (Status::deadline_exceeded("etcdserver: request timed out"), true),
            (Status::unknown("transport error"), true),
            (Status::unknown("etcdserver: corrupt cluster"), false),
            (Status::resource_exhausted("etcdserver: mvcc: database space exceeded"), false),
            (Status::out_of_range("etcdserver: mvcc: required revision has been compacted"), false),
        ];
        for (status, expected) in rows {
            assert_eq!(is_unwell(&status), expected, "{status}");
        }
    }
}
