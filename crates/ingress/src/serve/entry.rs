//! The record of a request when it is over: counted always, logged where that is asked for.
//!
//! The query is not logged: it is where secrets are.

use std::net::IpAddr;
use std::sync::Arc;

use http::{Method, StatusCode, Version};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::metrics::Metrics;
use crate::table::Route;

/// The choice whether requests are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessLog {
    /// A line for each.
    On,
    /// They are only counted.
    Off,
}

/// The client has gone before there was an answer. Source: nginx.
const CLIENT_GONE: u16 = 499;

/// A request under way; what is known of it is written down when this is dropped.
#[derive(Debug)]
pub(super) struct Entry {
    log: AccessLog,
    metrics: Metrics,
    began: Instant,
    client: IpAddr,
    scheme: &'static str,
    version: Version,
    method: Method,
    host: String,
    path: String,
    route: Option<Arc<Route>>,
    service: Option<String>,
    endpoint: Option<String>,
    status: Option<StatusCode>,
    bytes: u64,
    error: Option<String>,
    /// One of the requests that may be under way.
    _permit: Option<OwnedSemaphorePermit>,
}

impl Entry {
    pub(super) fn begin<B>(
        log: AccessLog,
        metrics: Metrics,
        client: IpAddr,
        scheme: &'static str,
        request: &http::Request<B>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self {
            log,
            metrics,
            began: Instant::now(),
            client,
            scheme,
            version: request.version(),
            method: request.method().clone(),
            host: String::new(),
            path: request.uri().path().to_owned(),
            route: None,
            service: None,
            endpoint: None,
            status: None,
            bytes: 0,
            error: None,
            _permit: permit,
        }
    }

    pub(super) fn is_for(&mut self, host: &str) {
        host.clone_into(&mut self.host);
    }

    pub(super) fn is_routed(&mut self, route: &Arc<Route>) {
        self.route = Some(Arc::clone(route));
    }

    pub(super) fn is_for_service(&mut self, service: &str) {
        self.service = Some(service.to_owned());
    }

    pub(super) fn is_sent_to(&mut self, endpoint: String) {
        self.endpoint = Some(endpoint);
    }

    pub(super) fn is_answered(&mut self, status: StatusCode) {
        self.status = Some(status);
    }

    pub(super) fn sent(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    pub(super) fn broke(&mut self, error: &dyn std::error::Error) {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        self.error = Some(text);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let status = self.status.map_or(CLIENT_GONE, |status| status.as_u16());
        let (took, ingress) = (self.began.elapsed(), self.route.as_ref().map(|route| route.of.as_str()));
        self.metrics.request(ingress, status, took.as_secs_f64());
        if self.log == AccessLog::Off {
            if let Some(error) = &self.error {
                tracing::debug!(ingress, endpoint = self.endpoint, status, error, "a request failed");
            }
            return;
        }
        tracing::info!(
            client = %self.client,
            scheme = self.scheme,
            version = ?self.version,
            method = %self.method,
            host = self.host,
            path = self.path,
            status,
            bytes = self.bytes,
            milliseconds = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            ingress,
            service = self.service,
            endpoint = self.endpoint,
            error = self.error,
            "request"
        );
    }
}
