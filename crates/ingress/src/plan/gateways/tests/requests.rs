//! From objects to what becomes of a request, in one go: planned, and asked of the rows as the data plane asks them.
//!
//! The tables are in `requests/`. `# NAME` begins one; the indented YAML below is its objects, beside an open Gateway if there
//! is none. A row is `- METHOD URL WORDS | ANSWER`: the URL has no scheme; `https` and `port=` say where it comes in, `sni=` for
//! which name, `<NAME=VALUE` is a header of the answer, and any other `NAME=VALUE` one of the request. An answer is a status, with
//! where it leads to, or the Services with their weights; then another target, headers and time, where something changes them.

use std::fmt::Write;

use http::{HeaderMap, HeaderName, Method};

use super::{OPEN, snapshot};
use crate::filters::{Came, HeaderEdit};
use crate::host;
use crate::matching::Facts;
use crate::path;
use crate::plan::plan;
use crate::router::{Found, Lead, Question, Router};
use crate::scheme::Scheme;
use crate::table::{Action, Entrance, Forward, Plain, Route, Table};

/// A request, as a row says it.
struct Asked<'t> {
    method: Method,
    host: &'t str,
    path: &'t str,
    query: Option<&'t str>,
    entrance: Entrance,
    server_name: Option<&'t str>,
    headers: HeaderMap,
    answer: HeaderMap,
}

impl<'t> Asked<'t> {
    fn of(text: &'t str) -> Self {
        let mut words = text.split(' ');
        let method = words.next().unwrap().parse().unwrap();
        let url = words.next().unwrap();
        let (url, query) = url.split_once('?').map_or((url, None), |(url, query)| (url, Some(query)));
        let (host, path) = url.split_at(url.find('/').unwrap());
        let (headers, answer) = (HeaderMap::new(), HeaderMap::new());
        let mut asked =
            Self { method, host, path, query, entrance: Entrance::Http, server_name: None, headers, answer };
        for word in words {
            match word.split_once('=') {
                None if word == "https" => asked.entrance = Entrance::Https,
                Some(("port", port)) => asked.entrance = Entrance::Port(port.parse().unwrap()),
                Some(("sni", name)) => asked.server_name = Some(name),
                Some((name, value)) => {
                    let (name, all) = match name.strip_prefix('<') {
                        Some(name) => (name, &mut asked.answer),
                        None => (name, &mut asked.headers),
                    };
                    all.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
                }
                None => panic!("no such word: {word}"),
            }
        }
        asked
    }

    fn answered(&self, router: &Router<Route>) -> String {
        let (Ok(host), Ok(path)) = (host::of_request(self.host), path::normal(self.path)) else {
            return "400".to_owned();
        };
        let question = Question {
            entrance: self.entrance,
            server_name: self.server_name,
            host: &host,
            path: &path,
            facts: Facts::of(&self.method, &self.headers, self.query),
        };
        let route = match router.route(&question) {
            Found::Nothing => return "404".to_owned(),
            Found::Misdirected => return "421".to_owned(),
            Found::Row(route) => route,
        };
        if route.plain == Plain::Redirected && self.entrance == Entrance::Http {
            return "308 to https".to_owned();
        }
        match &route.action {
            Action::Refuse(status) => status.as_u16().to_string(),
            Action::Forward(forward) => self.forwarded(route, forward, &path),
            Action::Redirect(redirect) => {
                let (scheme, port) = match self.entrance {
                    Entrance::Http => (Scheme::Http, 80),
                    Entrance::Https => (Scheme::Https, 443),
                    Entrance::Port(port) => (Scheme::Http, port),
                };
                let came =
                    Came { scheme, host: &host, port, path: &path, written: self.path, query: self.query };
                let location = redirect.location(&came);
                location.map_or("500".to_owned(), |to| format!("{} {to}", redirect.status.as_u16()))
            }
        }
    }

    fn forwarded(&self, route: &Route, forward: &Forward, path: &str) -> String {
        let Forward { rewrite, backends, mirrors } = forward;
        let mut told = Vec::new();
        for one in backends {
            let weight = if backends.len() == 1 { String::new() } else { format!("{} ", one.weight) };
            let absent = one.backend.targets.is_empty().then(|| format!(" {}", one.backend.absent.as_u16()));
            let mut text = format!("{weight}{}{}", short(&one.backend.service), absent.unwrap_or_default());
            let edits = [&route.edits.request, &one.edits.request];
            text.push_str(&changed(" with", &self.headers, edits));
            text.push_str(&changed(" answers", &self.answer, [&route.edits.response, &one.edits.response]));
            told.push(text);
        }
        let mut told = told.join(", ");
        for mirror in mirrors {
            let part = if mirror.numerator == mirror.denominator {
                String::new()
            } else {
                format!("{}/{} ", mirror.numerator, mirror.denominator)
            };
            write!(told, " + {part}{}", short(&mirror.backend.service)).unwrap();
        }
        if let Some(host) = &rewrite.host {
            write!(told, " for {}", host.to_str().unwrap()).unwrap();
        }
        if let Some(target) = rewrite.target(path, self.query) {
            write!(told, " at {}", target.unwrap()).unwrap();
        }
        if let Some(time) = route.timeouts.request {
            write!(told, " in {time:?}").unwrap();
        }
        told
    }
}

fn short(service: &str) -> &str {
    service.trim_start_matches("infra/").trim_end_matches(":8080")
}

/// Headers as a rule and a backend leave them, if either changes any.
fn changed(word: &str, headers: &HeaderMap, edits: [&HeaderEdit; 2]) -> String {
    if edits.iter().all(|edit| **edit == HeaderEdit::default()) {
        return String::new();
    }
    let mut headers = headers.clone();
    edits.iter().for_each(|edit| edit.apply(&mut headers));
    let mut all: Vec<_> =
        headers.iter().map(|(name, value)| format!("{name}={}", value.to_str().unwrap())).collect();
    all.sort();
    format!("{word} {{{}}}", all.join(" "))
}

fn router(table: Table) -> Router<Route> {
    let leads = table.rows.into_iter().map(|row| Lead {
        listener: row.listener,
        host: row.host,
        path: row.path,
        when: row.when,
        to: row.route,
    });
    Router::of(&table.listeners, leads)
}

/// Every row of a file of tables; all that differ are told at once.
fn check(text: &str) {
    let (mut differences, mut rows) = (String::new(), 0);
    for table in text.split("\n# ").skip(1) {
        let (name, body) = table.split_once('\n').unwrap();
        let objects: Vec<&str> = body.lines().take_while(|line| line.starts_with("  ")).collect();
        let objects = objects.join("\n").replace("\n  ", "\n").trim_start_matches("  ").to_owned();
        let open = if objects.contains("kind: Gateway\n") { "" } else { OPEN };
        let router = router(plan(&snapshot(&format!("{open}\n{objects}"))).table);
        for row in body.lines().filter_map(|line| line.strip_prefix("- ")) {
            let (request, expect) = row.split_once(" | ").unwrap_or_else(|| panic!("no answer: {row}"));
            let found = Asked::of(request).answered(&router);
            rows += 1;
            if found != expect {
                writeln!(differences, "{name}: {request}\n    {found}\n    {expect}").unwrap();
            }
        }
    }
    assert!(rows > 0 && differences.is_empty(), "of {rows} rows:\n{differences}");
}

#[test]
fn requests_of_the_conformance_suite_for_gateways_are_answered_as_it_says() {
    check(include_str!("requests/gateways.txt"));
}

#[test]
fn requests_are_changed_and_sent_elsewhere_as_the_conformance_suite_says() {
    check(include_str!("requests/filters.txt"));
}

#[test]
fn requests_for_ingresses_are_answered_as_their_documentation_says() {
    check(include_str!("requests/ingresses.txt"));
}
