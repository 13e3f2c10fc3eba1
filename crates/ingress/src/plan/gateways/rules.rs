//! Rules of routes as what is done with requests.
//!
//! A rule that cannot be followed in part is followed in part: matches that are none are left out, and requests that a filter
//! or a backend would be needed for that there is not are refused.
//! Source: `HTTPRouteRule`, `GRPCRouteRule`, `RouteConditionReason`; durations, GEP-2257.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use super::filters::{Filters, Of};
use super::grants::{Grants, Named};
use super::kind::RouteKind;
use super::matches::Match;
use super::routes::{Route, RouteSpec};
use super::unsupported::Unsupported;
use crate::filters::{Edits, PathEdit};
use crate::gateway::{BackendRef, HttpRouteMatch, MirrorFilter, ObjectReference, RouteFilter, RouteTimeouts};
use crate::path::PathMatch;
use crate::plan::backend::{Asked, Backends};
use crate::plan::finding::Finding;
use crate::plan::report::Refusal;
use crate::plan::snapshot::Snapshot;
use crate::table::{self, Action, Backend, Forward, Mirror, Plain, Protocol, Target, Timeouts, Weighted};

/// Unless somebody says, as for Ingresses.
const RESPONSE_TIMEOUT: Duration = Duration::from_mins(1);
/// Source: `BackendRef.weight`.
const WEIGHT_MAX: i64 = 1_000_000;

/// What a route's rules come to.
#[derive(Default)]
pub(super) struct Rules {
    /// Each match with what is done then, and the places of rule and match in the route.
    pub(super) leads: Vec<Lead>,
    /// The first thing that is named and cannot be had.
    pub(super) refs: Option<Refusal>,
    /// What of rules is not followed.
    pub(super) unsupported: Vec<String>,
    /// Rules of which nothing is led on, and all.
    pub(super) lost: usize,
    pub(super) count: usize,
}

/// Where requests of one match lead.
pub(super) struct Lead {
    pub(super) place: (usize, usize),
    pub(super) matched: Match,
    pub(super) route: Arc<table::Route>,
}

/// A rule of either kind.
struct Rule<'a> {
    matches: Vec<Result<Match, Unsupported>>,
    filters: &'a [RouteFilter],
    backends: &'a [BackendRef],
    timeouts: Option<&'a RouteTimeouts>,
}

/// What rules are found in.
pub(super) struct Resolver<'a> {
    snapshot: &'a Snapshot,
    grants: &'a Grants<'a>,
    backends: Backends<'a>,
}

impl<'a> Resolver<'a> {
    pub(super) fn of(snapshot: &'a Snapshot, grants: &'a Grants<'a>) -> Self {
        Self { snapshot, grants, backends: Backends::of(snapshot) }
    }

    /// What the rules of a route come to.
    pub(super) fn rules(&self, route: &Route<'_>) -> Rules {
        let mut made = Rules::default();
        for (number, rule) in self.of_route(route).iter().enumerate() {
            self.rule(route, (number, rule), &mut made);
        }
        made
    }

    fn of_route<'r>(&self, route: &Route<'r>) -> Vec<Rule<'r>> {
        let patterns = &self.snapshot.patterns;
        let all = |matches: Vec<_>| if matches.is_empty() { vec![Ok(Match::all())] } else { matches };
        match route.spec {
            RouteSpec::Http(spec) => {
                let of = |one: &HttpRouteMatch| Match::of_http(one, patterns);
                let rules = spec.rules.iter().map(|rule| Rule {
                    matches: all(rule.matches.iter().map(of).collect()),
                    filters: &rule.filters,
                    backends: &rule.backend_refs,
                    timeouts: rule.timeouts.as_ref(),
                });
                rules.collect()
            }
            RouteSpec::Grpc(spec) => {
                let rules = spec.rules.iter().map(|rule| Rule {
                    matches: all(rule.matches.iter().map(|one| Match::of_grpc(one, patterns)).collect()),
                    filters: &rule.filters,
                    backends: &rule.backend_refs,
                    timeouts: None,
                });
                rules.collect()
            }
        }
    }

    fn rule(&self, route: &Route<'_>, (number, rule): (usize, &Rule<'_>), made: &mut Rules) {
        made.count += 1;
        let (mut is_led, before) = (false, made.unsupported.len());
        let mut shared: Option<Arc<table::Route>> = None;
        for (index, matched) in rule.matches.iter().enumerate() {
            let matched = match matched {
                Ok(matched) => matched.clone(),
                Err(why) => {
                    made.unsupported.push(format!("rule {number}: {why}"));
                    continue;
                }
            };
            let known = shared.as_ref().filter(|route| !depends_on_prefix(&route.action));
            let led = known.cloned().unwrap_or_else(|| {
                let prefix = match &matched.path {
                    PathMatch::Prefix(prefix) => Some(prefix.as_str()),
                    _ => None,
                };
                Arc::new(self.lead(route, number, rule, prefix, made))
            });
            is_led |= !matches!(led.action, Action::Refuse(_));
            shared = Some(Arc::clone(&led));
            made.leads.push(Lead { place: (number, index), matched, route: led });
        }
        made.lost += usize::from(!is_led && made.unsupported.len() > before);
    }

    fn lead(
        &self,
        route: &Route<'_>,
        number: usize,
        rule: &Rule<'_>,
        prefix: Option<&str>,
        made: &mut Rules,
    ) -> table::Route {
        let absent = absent(route.kind);
        let mut lead = table::Route {
            of: route.name().to_string(),
            plain: Plain::Served,
            timeouts: Timeouts { response: None, request: None, is_stream: route.kind == RouteKind::Grpc },
            edits: Edits::default(),
            action: Action::Refuse(absent),
        };
        let mut unsupported = |why: Unsupported| made.unsupported.push(format!("rule {number}: {why}"));
        let filters = match Filters::of(rule.filters, Of::Rule, prefix) {
            Ok(filters) => filters,
            Err(why) => {
                unsupported(why);
                return lead;
            }
        };
        if route.kind == RouteKind::Http {
            match timeouts_of(rule.timeouts) {
                Ok(timeouts) => lead.timeouts = timeouts,
                Err(why) => {
                    unsupported(why);
                    return lead;
                }
            }
        }
        lead.edits = filters.edits;
        if let Some(redirect) = filters.redirect {
            lead.action = Action::Redirect(redirect);
            return lead;
        }
        let backends: Vec<Weighted> =
            rule.backends.iter().filter_map(|backend| self.weighted(route, number, backend, made)).collect();
        let mirrors = filters.mirrors.iter().filter_map(|mirror| self.mirror(route, mirror, made)).collect();
        if !backends.is_empty() {
            let rewrite = filters.rewrite.unwrap_or_default();
            lead.action = Action::Forward(Forward { rewrite, backends, mirrors });
        }
        lead
    }

    /// `None` if it gets no requests.
    fn weighted(
        &self,
        route: &Route<'_>,
        number: usize,
        reference: &BackendRef,
        made: &mut Rules,
    ) -> Option<Weighted> {
        let mut backend = self.backend(route, &reference.to, made);
        let edits = match Filters::of(&reference.filters, Of::Backend, None) {
            Ok(filters) => filters.edits,
            Err(why) => {
                made.unsupported.push(format!("rule {number}: {why}"));
                backend = Backend { targets: Vec::new(), absent: absent(route.kind), ..backend };
                Edits::default()
            }
        };
        let weight = u32::try_from(reference.weight.unwrap_or(1).clamp(0, WEIGHT_MAX)).ok()?;
        (weight > 0).then_some(Weighted { weight, edits, backend })
    }

    fn mirror(&self, route: &Route<'_>, filter: &MirrorFilter, made: &mut Rules) -> Option<Mirror> {
        let (numerator, denominator) = match (&filter.fraction, filter.percent) {
            (Some(fraction), _) => (fraction.numerator, fraction.denominator.unwrap_or(100)),
            (None, Some(percent)) => (percent, 100),
            (None, None) => (1, 1),
        };
        let backend = self.backend(route, &filter.backend_ref, made);
        let number = |number: i64| u32::try_from(number).ok().filter(|number| *number > 0);
        let (numerator, denominator) = number(numerator).zip(number(denominator))?;
        (!backend.targets.is_empty()).then_some(Mirror { numerator, denominator, backend })
    }

    /// Who is named; nobody, where something is wrong.
    fn backend(&self, route: &Route<'_>, reference: &ObjectReference, made: &mut Rules) -> Backend {
        let namespace = reference.namespace.as_deref().unwrap_or(route.namespace);
        let asked = Asked {
            namespace,
            service: &reference.name,
            port_name: None,
            port_number: reference.port,
            usual: if route.kind == RouteKind::Grpc { Protocol::H2c } else { Protocol::Http1 },
        };
        let service = asked.to_string();
        match self.targets(route, reference, &asked) {
            Ok(targets) => Backend { service, targets, absent: StatusCode::SERVICE_UNAVAILABLE },
            Err(refusal) => {
                made.refs.get_or_insert(refusal);
                Backend { service, targets: Vec::new(), absent: absent(route.kind) }
            }
        }
    }

    fn targets(
        &self,
        route: &Route<'_>,
        reference: &ObjectReference,
        asked: &Asked<'_>,
    ) -> Result<Vec<Target>, Refusal> {
        let kind = reference.kind.as_deref().unwrap_or("Service");
        if kind != "Service" || reference.group.as_deref().is_some_and(|group| !group.is_empty()) {
            let message = format!("{kind} {} cannot be a backend: it must be a Service", reference.name);
            return Err(Refusal::new("InvalidKind", message));
        }
        let named = Named { kind, namespace: asked.namespace, name: asked.service };
        if !self.grants.allow(route.kind.as_str(), route.namespace, &named) {
            let (who, what) = (route.kind.as_str(), format!("{}/{}", asked.namespace, asked.service));
            let message =
                format!("no ReferenceGrant allows {who}s of {} to name Service {what}", route.namespace);
            return Err(Refusal::new("RefNotPermitted", message));
        }
        self.backends.targets(asked).map_err(|finding| {
            let (reason, why) = match &finding {
                Finding::ServiceExternal { .. } => ("UnsupportedValue", "is of type ExternalName"),
                Finding::PortMissing { .. } => ("BackendNotFound", "is no port of a Service"),
                Finding::AuthorityMissing { .. } => ("BackendNotFound", "has no Secret to be verified by"),
                _ => ("BackendNotFound", "is no Service"),
            };
            Refusal::new(reason, format!("backend {asked} {why}"))
        })
    }
}

/// What is answered where there should be somebody. To a client of gRPC it is `UNAVAILABLE`.
fn absent(kind: RouteKind) -> StatusCode {
    match kind {
        RouteKind::Http => StatusCode::INTERNAL_SERVER_ERROR,
        RouteKind::Grpc => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// Whether what is done is about the path that was matched.
fn depends_on_prefix(action: &Action) -> bool {
    let path = match action {
        Action::Forward(forward) => forward.rewrite.path.as_ref(),
        Action::Redirect(redirect) => redirect.path.as_ref(),
        Action::Refuse(_) => None,
    };
    matches!(path, Some(PathEdit::Prefix { .. }))
}

/// The shorter of both counts; none is for ever.
fn timeouts_of(timeouts: Option<&RouteTimeouts>) -> Result<Timeouts, Unsupported> {
    let given = timeouts.into_iter().flat_map(|timeouts| [&timeouts.request, &timeouts.backend_request]);
    let mut all = Vec::new();
    for text in given.flatten() {
        all.push(duration(text).ok_or_else(|| Unsupported::Timeout(text.clone()))?);
    }
    let response = all.is_empty().then_some(RESPONSE_TIMEOUT);
    let request = all.into_iter().filter(|duration| !duration.is_zero()).min();
    Ok(Timeouts { response, request, is_stream: false })
}

/// Source: GEP-2257: up to four numbers of up to five digits with units.
fn duration(text: &str) -> Option<Duration> {
    let (mut rest, mut sum, mut parts) = (text, Duration::ZERO, 0);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at_checked(digits)?;
        let number = number.parse::<u32>().ok().filter(|_| digits <= 5)?;
        let unit = after.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, after) = after.split_at_checked(unit)?;
        let unit = match unit {
            "h" => Duration::from_hours(1),
            "m" => Duration::from_mins(1),
            "s" => Duration::from_secs(1),
            "ms" => Duration::from_millis(1),
            _ => return None,
        };
        parts += 1;
        sum += unit.saturating_mul(number);
        rest = after;
    }
    (1..=4).contains(&parts).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_as_upstream_writes_them() {
        let rows = [
            ("0s", Some(0)),
            ("500ms", Some(500)),
            ("1m30s", Some(90_000)),
            ("1h1m1s1ms", Some(3_661_001)),
            ("10", None),
            ("", None),
            ("s", None),
            ("1.5s", None),
            ("-1s", None),
            ("100000s", None),
            ("1s1s1s1s1s", None),
            ("1us", None),
        ];
        for (text, expected) in rows {
            assert_eq!(duration(text).map(|found| found.as_millis()), expected, "{text}");
        }
        let timeouts = |request: Option<&str>, backend: Option<&str>| RouteTimeouts {
            request: request.map(str::to_owned),
            backend_request: backend.map(str::to_owned),
        };
        let waits = |timeouts: &RouteTimeouts| {
            timeouts_of(Some(timeouts)).map(|found| (found.response, found.request))
        };
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(waits(&timeouts(None, None)), Ok((seconds(60), None)));
        assert_eq!(waits(&timeouts(Some("3s"), None)), Ok((None, seconds(3))));
        assert_eq!(waits(&timeouts(Some("3s"), Some("2s"))), Ok((None, seconds(2))));
        assert_eq!(waits(&timeouts(Some("0s"), None)), Ok((None, None)));
        assert_eq!(waits(&timeouts(Some("0s"), Some("2s"))), Ok((None, seconds(2))));
        assert!(waits(&timeouts(Some("soon"), None)).is_err());
    }
}
