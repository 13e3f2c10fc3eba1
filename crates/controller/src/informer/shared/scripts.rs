//! Stores by scripts: `A`, `M` and `D` are events of a watch, `L` is a list, `B` a bookmark and `E` an error; `T` is what a
//! subscriber takes. Objects are `name@revision`, with `#` before another uid, `^` before an owner, and `!` if they cannot be decoded.
//!
//! Source: `shared_informer_test.go`, `thread_safe_store_test.go`, `reflector_test.go` of upstream's `client-go/tools/cache`.

use expect_test::expect_file;
use k8s_openapi::api::core::v1::Pod;

use super::*;
use crate::informer::Informer;
use crate::table;

fn object(text: &str) -> String {
    let (text, spec) = text.strip_suffix('!').map_or((text, "{}"), |text| (text, "7"));
    let (text, owner) = text.split_once('^').unwrap_or((text, ""));
    let (name, revision) = text.split_once('@').expect("a revision");
    let (name, uid) = name.split_once('#').unwrap_or((name, "u"));
    let owners = match owner {
        "" => String::new(),
        owner => {
            format!(
                r#","ownerReferences":[{{"apiVersion":"v1","kind":"X","name":"x","uid":"{owner}","controller":true}}]"#
            )
        }
    };
    format!(
        r#"{{"metadata":{{"namespace":"n","name":"{name}","uid":"{uid}","resourceVersion":"{revision}"{owners}}},"spec":{spec}}}"#
    )
}

fn told(pod: &Option<Arc<Pod>>) -> String {
    pod.as_ref().map_or("-".to_owned(), |pod| {
        format!("{}@{}", pod.metadata.name.clone().unwrap_or_default(), revision_of(&pod.metadata))
    })
}

fn run(script: &str) -> String {
    let shared = Arc::new(Shared::of(ObjectType::of::<Pod>(), Undecodable::untold(), None));
    let pods = Informer::<Pod>::over(shared.clone());
    let changes = pods.subscribe();
    let mut out = Vec::new();
    for word in script.split(' ') {
        let (deed, rest) = word.split_at(1);
        let event = |kind: &str, object: String| {
            shared.take_event(format!(r#"{{"type":"{kind}","object":{object}}}"#).as_bytes())
        };
        let step = match deed {
            "A" => event("ADDED", object(rest)),
            "M" => event("MODIFIED", object(rest)),
            "D" => event("DELETED", object(rest)),
            "B" => event("BOOKMARK", format!(r#"{{"metadata":{{"resourceVersion":"{rest}"}}}}"#)),
            "E" => event("ERROR", format!(r#"{{"kind":"Status","code":{rest}}}"#)),
            "T" => {
                let all = changes.take();
                let line = |change: &Change<Pod>| format!("{}>{}", told(&change.old), told(&change.new));
                out.push(format!("[{}]", all.iter().map(line).collect::<Vec<_>>().join(" ")));
                continue;
            }
            "L" => {
                let (revision, items) = rest.split_once(':').expect("a list");
                let items: Vec<_> = items.split(',').filter(|item| !item.is_empty()).map(object).collect();
                let items = items.join(",");
                let list = format!(r#"{{"metadata":{{"resourceVersion":"{revision}"}},"items":[{items}]}}"#);
                shared.take_list(list.as_bytes()).map(WatchStep::Seen)
            }
            other => panic!("no such deed: {other}"),
        };
        match step {
            Ok(WatchStep::Seen(_)) => {}
            Ok(WatchStep::Refused(status)) => out.push(format!("refused {}", status.code.unwrap_or(0))),
            Err(error) => out.push(error.to_string()),
        }
    }
    let all = |pods: Vec<Arc<Pod>>| -> Vec<String> { pods.into_iter().map(|pod| told(&Some(pod))).collect() };
    out.push(format!("{} at {}", all(pods.list()).join(" "), pods.revision()).trim().to_owned());
    let owned = all(pods.dependents_of("o"));
    if !owned.is_empty() {
        out.push(format!("owned {}", owned.join(" ")));
    }
    out.join("; ")
}

#[test]
fn stores_hold_what_upstreams_do() {
    table::check(&expect_file!["scripts/stores.txt"], run);
}
