//! What bad input may cost: memory that its length pays for, and little time.
//!
//! Memory is counted by the allocator of this test, time by the clock of its thread, and in a unit that is measured in
//! the same build on the same machine: how long it takes to parse a body of the greatest length. There is one test, so
//! that nothing else is counted.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "a test")]

#[path = "api/fixtures.rs"]
mod fixtures;
#[path = "api/nasty.rs"]
mod nasty;
#[path = "api/server.rs"]
mod server;

use std::time::Duration;

use fixtures::{collection, served};
use http_body_util::BodyExt;
use nasty::{APPLY_PATCH, BODY_BYTES_MAX, JSON, JSON_PATCH, MERGE_PATCH, PROTOBUF, STRATEGIC_PATCH, YAML};
use nix::time::{ClockId, clock_gettime};
use peak_alloc::PeakAlloc;
use schema::Shape;
use serde_json::Value;
use server::{TestServer, start};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// How often its length a body may take.
const TIMES_BODY_MAX: usize = 10;
/// The same for custom resource definitions: structural schemas are small objects within small objects.
const TIMES_SCHEMAS_MAX: usize = 50;
/// What any request may take beside that: a short body may be an object that is a hundred times as large.
const ALLOWANCE_BYTES: usize = 8 * 1024 * 1024;
/// A sixth of a second of a release build, in the unit: parsing 3 MiB takes that build 20 milliseconds. The dearest are
/// three million bytes of YAML, at five to six units; what grows faster than its length takes hundreds.
const TIME_UNITS_MAX: f64 = 8.0;
/// How often a request is sent that seems to cost too much.
const TRIES_MAX: usize = 3;

fn cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

/// How long it takes to parse 3 MiB of JSON such as people send.
fn unit() -> Duration {
    let object = r#"{"name": "some name", "value": 17, "list": ["a", "b", true], "empty": {}},"#;
    let text = nasty::repeated("[", object, "0]", BODY_BYTES_MAX);
    let start = cpu();
    let value: Value = serde_json::from_slice(&text).unwrap();
    let took = cpu() - start;
    assert!(value.is_array());
    took
}

struct Costs {
    server: TestServer,
    unit: Duration,
    findings: Vec<String>,
    worst: (f64, f64),
}

impl Costs {
    async fn check(&mut self, name: &str, what: (&str, &str, &str), body: Vec<u8>) {
        let body = bytes::Bytes::from(body);
        // Others' use of the caches makes it slower now and then, and nothing makes it faster than it is.
        for tries_left in (0..TRIES_MAX).rev() {
            if self.try_once(name, what, &body, tries_left == 0).await {
                return;
            }
        }
    }

    /// Whether it was cheap and refused; says what was wrong if it is the last try.
    async fn try_once(
        &mut self,
        name: &str,
        what: (&str, &str, &str),
        body: &bytes::Bytes,
        is_final: bool,
    ) -> bool {
        let ((method, path, kind), length) = (what, body.len());
        let body = http_body_util::Full::new(body.clone());
        let builder = http::Request::builder().method(method).uri(path).header("content-type", kind);
        let request = builder.extension(server::admin()).body(body).unwrap();
        let service = self.server.server.service();
        let before = MEMORY.current_usage();
        MEMORY.reset_peak_usage();
        let start = cpu();
        let response = tower::ServiceExt::oneshot(service, request).await.unwrap();
        let code = response.status();
        let answer = response.into_body().collect().await.unwrap().to_bytes();
        let took = cpu() - start;
        // The body itself was there before.
        let peak = MEMORY.peak_usage().saturating_sub(before) + length;
        let units = took.as_secs_f64() / self.unit.as_secs_f64();
        self.worst = (self.worst.0.max(units), self.worst.1.max(peak as f64 / length as f64));
        let times = match path.contains("customresourcedefinitions") {
            true => TIMES_SCHEMAS_MAX,
            false => TIMES_BODY_MAX,
        };
        let is_cheap = peak <= times * length + ALLOWANCE_BYTES && units <= TIME_UNITS_MAX;
        let is_refused = code.is_client_error() && serde_json::from_slice::<Value>(&answer).is_ok();
        let is_fine = is_cheap && is_refused;
        if !is_fine && is_final {
            let (kib, answer) =
                (peak / 1024, String::from_utf8_lossy(&answer[..answer.len().min(200)]).into_owned());
            self.findings.push(format!(
                "{name}: {method} {path} {kind}: {length} bytes took {kib} KiB and {units:.1} units: {code} {answer}"
            ));
        }
        is_fine
    }
}

/// Elements and entries that are short to write.
const ELEMENTS: [&str; 4] = ["{}", "0", "\"\"", "{\"a\":0}"];

#[tokio::test]
async fn bad_input_costs_no_more_than_its_length_pays_for() {
    let server = start(None).await;
    let account = "/api/v1/namespaces/default/serviceaccounts";
    assert_eq!(server.call("POST", account, "{metadata: {name: default}}").await.code, 201);
    let unit = unit().min(unit());
    let mut costs = Costs { server, unit, findings: Vec::new(), worst: (0.0, 0.0) };
    bombs(&mut costs).await;
    patches(&mut costs).await;
    whole_bodies(&mut costs).await;
    fields(&mut costs).await;
    let Costs { server, findings, worst, .. } = costs;
    eprintln!("at most {:.1} units of {unit:?} and {:.1} times the body", worst.0, worst.1);
    let shown: Vec<_> = findings.iter().take(200).collect();
    assert!(findings.is_empty(), "{} findings: {shown:#?}", findings.len());
    server.stop().await;
}

/// Bodies of the greatest length, some of them cut off, some whole.
async fn whole_bodies(costs: &mut Costs) {
    for path in ["/api/v1/namespaces/default/pods"] {
        for element in ELEMENTS {
            for (head, tail) in
                [("[", "0]"), ("{\"spec\":[", "0]}"), ("{\"metadata\":{\"finalizers\":[", "\"\"]}}")]
            {
                let body = nasty::repeated(head, &format!("{element},"), tail, BODY_BYTES_MAX);
                costs.check(element, ("POST", path, JSON), body.clone()).await;
                costs.check(element, ("POST", path, YAML), body.clone()).await;
                costs.check(element, ("POST", path, JSON), body[..body.len() - 1].to_vec()).await;
            }
        }
        for (what, unit) in
            [("spaces", " "), ("letters", "a"), ("zeros", "0"), ("quotes", "\\\""), ("dashes", "- ")]
        {
            costs.check(what, ("POST", path, JSON), nasty::repeated("", unit, "", BODY_BYTES_MAX)).await;
            costs.check(what, ("POST", path, YAML), nasty::repeated("", unit, "", BODY_BYTES_MAX)).await;
        }
        costs.check("too long", ("POST", path, JSON), vec![b' '; BODY_BYTES_MAX + 1]).await;
    }
}

/// Lists and maps of the schema, filled with what is short to write: always the same sample of them.
async fn fields(costs: &mut Costs) {
    const LENGTH: usize = 128 * 1024;
    const ONE_IN: usize = 6;
    let mut count = 0;
    // What clients say of themselves in that review counts for nothing: nothing in it is refused.
    let rows = nasty::reachable().into_iter().filter(|(row, ..)| row.plural != "selfsubjectreviews");
    for (row, path, schema) in rows {
        let target = format!("{}?dryRun=All", collection(row));
        for field in schema.fields() {
            let mut full = path.clone();
            full.push(field.name.to_string());
            let ty = schema.field_type(&field.name).unwrap();
            let (open, unit, close) = match ty.shape() {
                Shape::List(item, ..) => match item.shape() {
                    Shape::Object(_) => ("[", "{},", "{}]"),
                    _ => ("[", "\"\",", "\"\"]"),
                },
                Shape::Map(_) => ("{", "\"%%%%\":\"\",", "\"a\":\"\"}"),
                _ => continue,
            };
            count += 1;
            if count % ONE_IN != 0 {
                continue;
            }
            let whole = nasty::nested(&full, "@");
            let (head, tail) = whole.split_once('@').unwrap();
            let (head, tail) = (format!("{head}{open}"), format!("{close}{tail}"));
            let mut body = nasty::repeated(&head, unit, &tail, LENGTH);
            name_keys(&mut body);
            costs.check(&head, ("POST", &target, JSON), body).await;
        }
    }
}

/// Makes every `%%%%` another text.
fn name_keys(body: &mut [u8]) {
    let keys = body.chunk_by_mut(|a, b| (*a == b'%') == (*b == b'%')).filter(|run| run[0] == b'%');
    for (number, key) in keys.enumerate() {
        let mut rest = number;
        for byte in key {
            *byte = b'a' + u8::try_from(rest % 26).unwrap();
            rest /= 26;
        }
    }
}

/// Patches of an object that is there.
async fn patches(costs: &mut Costs) {
    let one = "/api/v1/namespaces/default/configmaps/patched";
    let made = r#"{"metadata": {"name": "patched", "finalizers": ["a/b"]}, "data": {"a": "b"}}"#;
    let path = "/api/v1/namespaces/default/configmaps";
    assert_eq!(costs.server.call("POST", path, made).await.code, 201);
    for kind in [MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH] {
        let target = format!("{one}?dryRun=All{}", if kind == APPLY_PATCH { "&fieldManager=m" } else { "" });
        for element in ELEMENTS {
            let body = nasty::repeated("{\"data\":[", &format!("{element},"), "0]}", BODY_BYTES_MAX);
            costs.check(element, ("PATCH", &target, kind), body).await;
            let body = nasty::repeated(
                "{\"metadata\":{\"ownerReferences\":[",
                &format!("{element},"),
                "0]}}",
                BODY_BYTES_MAX,
            );
            costs.check(element, ("PATCH", &target, kind), body).await;
        }
    }
    for unit in [
        "{},",
        r#"{"op":"add","path":"/metadata/finalizers/0","value":"a/b"},"#,
        r#"{"op":"copy","from":"/metadata","path":"/metadata/a"},"#,
        r#"{"op":"test","path":"","value":{}},"#,
        r#"{"op":"add","path":"/data/a","value":{}},"#,
        r#"{"op":"copy","from":"","path":"/data/a"},"#,
    ] {
        for length in [BODY_BYTES_MAX, unit.len() * 9_990] {
            let body = nasty::repeated("[", unit, r#"{"op":"fly"}]"#, length.min(BODY_BYTES_MAX));
            costs.check(unit, ("PATCH", one, JSON_PATCH), body).await;
        }
    }
}

/// Bodies that multiply themselves. That they are refused by every row is another test's; what they cost is the same for
/// most of them.
async fn bombs(costs: &mut Costs) {
    let rows = served().filter(|row| row.allows("create")).enumerate();
    let sample = rows.filter(|(at, row)| at % 5 == 0 || row.plural == "customresourcedefinitions");
    for (_, row) in sample {
        let path = format!("{}?dryRun=All", collection(row));
        for (name, kind, body) in nasty::bombs() {
            costs.check(name, ("POST", &path, kind), body).await;
        }
        // Two bytes each: the metadata again and again, and elements of the lists that are the first fields of `spec`.
        let seal = |message: &[u8]| schema::proto::seal(&row.api_version(), &row.kind, message);
        let many = |number: u8| [number << 3 | 2, 0].repeat(128 * 1024);
        costs.check("empty messages", ("POST", &path, PROTOBUF), seal(&many(1))).await;
        let schema = schema::builtin().kind(&row.group, &row.version, &row.kind).unwrap();
        // Elsewhere the second field is no object, and may be a long text.
        let fields = if schema.field("spec").is_some() { 1..4 } else { 0..0 };
        for number in fields {
            let elements = many(number);
            let mut spec = vec![0x12];
            let length = u32::try_from(elements.len()).unwrap();
            spec.extend([0, 7, 14].map(|shift| u8::try_from(length >> shift & 0x7f).unwrap() | 0x80));
            spec.push(u8::try_from(length >> 21).unwrap());
            spec.extend(elements);
            costs.check("empty elements", ("POST", &path, PROTOBUF), seal(&spec)).await;
        }
    }
}
