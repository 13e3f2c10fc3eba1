//! The annotations of an Ingress that are knarr's own.

use std::time::Duration;

use k8s_openapi::api::networking::v1::Ingress;

use super::finding::Finding;
use crate::table::Plain;

/// Whether requests without TLS are redirected where there is TLS: `true`, which is the default, or `false`.
pub(super) const SSL_REDIRECT: &str = "ingress.knarr.io/ssl-redirect";
/// How many seconds a backend may take to begin an answer.
pub(super) const RESPONSE_TIMEOUT: &str = "ingress.knarr.io/response-timeout-seconds";

/// Unless somebody says. Source: `proxy_read_timeout` of nginx.
const RESPONSE_TIMEOUT_DEFAULT: Duration = Duration::from_mins(1);
const RESPONSE_TIMEOUT_SECONDS_MAX: u64 = 86_400;

/// What an Ingress asks for.
#[derive(Debug)]
pub(super) struct Wishes {
    pub(super) plain: Plain,
    pub(super) response_timeout: Duration,
    pub(super) findings: Vec<Finding>,
}

impl Wishes {
    pub(super) fn of(ingress: &Ingress) -> Self {
        let mut wishes = Self {
            plain: Plain::Redirected,
            response_timeout: RESPONSE_TIMEOUT_DEFAULT,
            findings: Vec::new(),
        };
        let all = ingress.metadata.annotations.iter().flatten();
        for (name, value) in all {
            match name.as_str() {
                SSL_REDIRECT => match value.as_str() {
                    "true" => {}
                    "false" => wishes.plain = Plain::Served,
                    _ => wishes.bad(name, "must be true or false"),
                },
                RESPONSE_TIMEOUT => match value.parse() {
                    Ok(seconds) if (1..=RESPONSE_TIMEOUT_SECONDS_MAX).contains(&seconds) => {
                        wishes.response_timeout = Duration::from_secs(seconds);
                    }
                    _ => wishes.bad(name, "must be a number between 1 and 86400"),
                },
                _ => {}
            }
        }
        wishes
    }

    fn bad(&mut self, name: &str, why: &'static str) {
        self.findings.push(Finding::BadAnnotation { name: name.to_owned(), why });
    }
}
