use std::sync::Mutex;

use k8s_openapi::api::core::v1::Node;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::asking::{bind, decide_with, interested, preempt_with};
use super::*;
use crate::decide::Decision;
use crate::diagnosis::Diagnosis;
use crate::node_info::Snapshot;
use crate::preemption::Preemption;

/// What a server does with every question.
#[derive(Clone)]
enum Answer {
    /// By the last part of the path.
    Json(fn(&str, &Value) -> Value),
    /// Nothing, for ever.
    Silence,
    /// More than anybody wants to read.
    Endless,
    Status(u16),
}

/// Gives the server's URL, and what it was asked.
async fn serve(answer: Answer) -> (String, Arc<Mutex<Vec<(String, Value)>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/sub", listener.local_addr().expect("an address"));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(reply(stream, answer.clone(), Arc::clone(&seen)));
        }
    });
    (url, asked)
}

async fn reply(mut stream: TcpStream, answer: Answer, seen: Arc<Mutex<Vec<(String, Value)>>>) {
    let mut text = Vec::new();
    let (path, body) = loop {
        let mut buffer = [0; 4096];
        let read = stream.read(&mut buffer).await.expect("a request");
        text.extend_from_slice(buffer.get(..read).expect("what was read"));
        let whole = String::from_utf8_lossy(&text).into_owned();
        if let Some((head, body)) = whole.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.to_lowercase().strip_prefix("content-length: ").map(str::to_owned));
            if Some(body.len()) == length.and_then(|length| length.parse().ok()) {
                break (head.split(' ').nth(1).unwrap_or_default().to_owned(), body.to_owned());
            }
        }
    };
    let question: Value = serde_json::from_str(&body).expect("JSON");
    seen.lock().expect("nobody failed").push((path.clone(), question.clone()));
    let head = |code: u16, length: &str| format!("HTTP/1.1 {code} X\r\nconnection: close\r\n{length}\r\n");
    match answer {
        Answer::Json(of) => {
            let body = of(path.rsplit('/').next().unwrap_or_default(), &question).to_string();
            let text = format!("{}{body}", head(200, &format!("content-length: {}\r\n", body.len())));
            stream.write_all(text.as_bytes()).await.expect("a reader");
        }
        Answer::Status(code) => {
            stream.write_all(head(code, "content-length: 0\r\n").as_bytes()).await.expect("a reader");
        }
        Answer::Silence => std::future::pending().await,
        Answer::Endless => {
            stream.write_all(head(200, "").as_bytes()).await.expect("a reader");
            while stream.write_all(&[b' '; 65536]).await.is_ok() {}
        }
    }
}

fn extender(url: &str) -> Extender {
    let verb = |name: &str| Some(name.to_owned());
    Extender {
        url: url.to_owned(),
        verbs: Verbs {
            filter: verb("filter"),
            prioritize: verb("prioritize"),
            preempt: None,
            bind: verb("bind"),
        },
        weight: 1,
        tls: Tls::default(),
        timeout: Duration::from_millis(500),
        has_node_cache: true,
        managed: BTreeSet::new(),
        is_ignorable: false,
    }
}

/// A client that knows these Pods whole: `p` with an argument, which scheduling has no use for.
async fn client(extender: Extender) -> Client {
    let names = ["p", "vip", "x", "y", "peer"];
    let pods = names.map(|name| {
        let uid = if name == "p" { "u" } else { name };
        let pod = format!(
            "{{metadata: {{name: {name}, namespace: d, uid: {uid}}}, spec: {{containers: [{{name: c, args: [a]}}]}}}}"
        );
        serde_saphyr::from_str(&pod).expect("a Pod")
    });
    Client::new(extender, Informer::fixed(pods.into())).await
}

fn pod() -> Pod {
    serde_saphyr::from_str("{metadata: {name: p, namespace: d, uid: u}, spec: {containers: [{name: c, resources: {limits: {example.com/a: '1'}}}]}}").expect("a pod")
}

fn nodes() -> Snapshot {
    let mut snapshot = Snapshot::default();
    let mut profile = crate::profile::Profile::default();
    profile.arguments.fit.ignored.insert("example.com/a".to_owned());
    snapshot.profiles = crate::profile::Profiles::new(profile, Vec::new());
    for name in ["a", "b", "c"] {
        let node = format!(
            "{{metadata: {{name: {name}}}, status: {{allocatable: {{cpu: '4', memory: 4Gi, pods: 9}}}}}}"
        );
        snapshot.set_node(Arc::new(serde_saphyr::from_str::<Node>(&node).expect("a node")));
    }
    snapshot
}

/// What is decided about a Pod for three Nodes if the extender answers so; `tell` changes how it is configured.
async fn check(answer: Answer, tell: fn(&mut Extender), expect: &str) -> Vec<(String, Value)> {
    let (url, asked) = serve(answer).await;
    let mut extender = extender(&url);
    tell(&mut extender);
    let clients = [client(extender).await];
    let (pod, snapshot) = (pod(), nodes());
    let text =
        match decide_with(&interested(&clients, &pod), &pod, None, &snapshot, 0, &mut Diagnosis::default())
            .await
        {
            Decision::Bind(choice) => choice.node,
            Decision::Unschedulable(why) | Decision::Failed(why) | Decision::Unheard(why) => why,
        };
    assert_eq!(text.replace(&url, "URL"), expect);
    let asked = asked.lock().expect("nobody failed");
    asked.clone()
}

#[tokio::test]
async fn an_extender_filters_and_ranks() {
    let answer = |verb: &str, _: &Value| match verb {
        "filter" => json!({"nodeNames": ["b", "c"], "failedNodes": {"a": "no a"}}),
        _ => json!([{"host": "c", "score": 10}, {"Host": "nobody", "Score": 9}]),
    };
    let asked = check(Answer::Json(answer), |_| {}, "c").await;
    let [(filter, first), (prioritize, second)] = asked.as_slice() else {
        panic!("two questions: {asked:?}")
    };
    assert_eq!((filter.as_str(), prioritize.as_str()), ("/sub/filter", "/sub/prioritize"));
    assert_eq!((&first["NodeNames"], &first["Nodes"]), (&json!(["a", "b", "c"]), &Value::Null));
    assert_eq!(first["Pod"]["metadata"]["name"], "p");
    assert_eq!(first["Pod"]["spec"]["containers"][0]["args"], json!(["a"]));
    assert_eq!(second["NodeNames"], json!(["b", "c"]));
}

#[tokio::test]
async fn who_has_no_cache_is_given_nodes_and_gives_some_back() {
    let answer = |verb: &str, question: &Value| match verb {
        "filter" => json!({"Nodes": {"items": [question["Nodes"]["items"][1]]}}),
        _ => json!([]),
    };
    let asked = check(Answer::Json(answer), |extender| extender.has_node_cache = false, "b").await;
    let [(_, question), ..] = asked.as_slice() else { panic!("a question") };
    assert_eq!(question["NodeNames"], Value::Null);
    assert_eq!(question["Nodes"]["items"][0]["status"]["allocatable"]["cpu"], "4");
}

#[tokio::test]
async fn nodes_that_are_refused_are_told() {
    let answer = |_: &str, _: &Value| json!({"NodeNames": [], "FailedNodes": {"a": "full\n", "b": "full\n", "x": "who"}, "FailedAndUnresolvableNodes": {"b": "broken"}});
    check(
        Answer::Json(answer),
        |_| {},
        "0/3 nodes are available: 1 broken, 1 full , 1 node(s) were refused by an extender.",
    )
    .await;
    check(
        Answer::Json(|_, _| json!({})),
        |_| {},
        "0/3 nodes are available: 3 node(s) were refused by an extender.",
    )
    .await;
    let many = |_: &str, _: &Value| json!({"FailedNodes": {"a": "x".repeat(1 << 20)}});
    let expect =
        format!("0/3 nodes are available: 1 {}..., 2 node(s) were refused by an extender.", "x".repeat(256));
    check(Answer::Json(many), |_| {}, &expect).await;
}

#[tokio::test]
async fn a_hostile_extender_is_bounded_and_told() {
    let late = "Post \"URL/filter\": context deadline exceeded";
    check(Answer::Silence, |_| {}, late).await;
    let long = "extender \"URL/filter\" answered what cannot be read: length limit exceeded";
    check(Answer::Endless, |extender| extender.timeout = Duration::from_secs(20), long).await;
    let code = "failed filter with extender at URL URL/filter, code 500";
    check(Answer::Status(500), |_| {}, code).await;
    let stranger = |_: &str, _: &Value| json!({"NodeNames": ["a", "other"]});
    let unknown =
        "extender \"URL\" claims a filtered node \"other\" which is not found in the input node list";
    check(Answer::Json(stranger), |_| {}, unknown).await;
    check(Answer::Json(|_, _| json!({"Error": "I will not"})), |_| {}, "I will not").await;
    check(
        Answer::Json(|_, _| json!([{"Host": 7}])),
        |_| {},
        "0/3 nodes are available: 3 node(s) were refused by an extender.",
    )
    .await;
    let greedy = |verb: &str, _: &Value| match verb {
        "filter" => json!({"NodeNames": ["a", "b", "b", "a"]}),
        _ => {
            json!([{"Host": "b", "Score": i64::MAX}, {"Host": "b", "Score": i64::MAX}, {"Host": "a", "Score": i64::MIN}])
        }
    };
    check(Answer::Json(greedy), |extender| extender.weight = i64::MAX, "b").await;
}

#[tokio::test]
async fn a_pod_that_is_not_known_whole_is_not_shown() {
    let (url, asked) = serve(Answer::Json(|_, _| json!({"NodeNames": ["a"]}))).await;
    let mut unseen = pod();
    let check = async |pod: &Pod| {
        let clients = [client(extender(&url)).await];
        let asked = interested(&clients, pod);
        match decide_with(&asked, pod, None, &nodes(), 0, &mut Diagnosis::default()).await {
            Decision::Unheard(why) => why.replace(&url, "URL"),
            other => panic!("{other:?}"),
        }
    };
    let unknown = "pod \"d/p\" is not known whole, as extender \"URL\" is to have it";
    unseen.metadata.uid = Some("another".to_owned());
    assert_eq!(check(&unseen).await, unknown);
    // It is known in a newer version than the whole one will ever be.
    unseen.metadata = pod().metadata;
    unseen.metadata.resource_version = Some("7".to_owned());
    assert_eq!(check(&unseen).await, unknown);
    assert!(asked.lock().expect("nobody failed").is_empty());
}

#[tokio::test]
async fn things_go_on_without_who_can_be_ignored() {
    let ignore = |extender: &mut Extender| extender.is_ignorable = true;
    check(Answer::Silence, ignore, "a").await;
    check(Answer::Status(404), ignore, "a").await;
    let answer = |verb: &str, _: &Value| match verb {
        "filter" => json!({"NodeNames": ["b"]}),
        _ => json!("no list"),
    };
    check(Answer::Json(answer), |_| {}, "b").await;
}

#[tokio::test]
async fn an_extender_is_asked_about_what_it_looks_after() {
    let mut extender = extender("http://127.0.0.1:1");
    assert!(extender.is_interested(&pod()));
    extender.managed.insert("example.com/b".to_owned());
    assert!(!extender.is_interested(&pod()));
    extender.managed.insert("example.com/a".to_owned());
    assert!(extender.is_interested(&pod()));
}

#[tokio::test]
async fn an_extender_that_binds_does_so_alone() {
    let answer = |_: &str, question: &Value| match question["Node"].as_str() {
        Some("a") => json!({}),
        _ => json!({"Error": "not there"}),
    };
    let (url, asked) = serve(Answer::Json(answer)).await;
    let clients = [client(extender(&url)).await];
    assert!(matches!(bind(&clients, &pod(), "a").await, Ok(true)));
    let question = json!({"PodName": "p", "PodNamespace": "d", "PodUID": "u", "Node": "a"});
    assert_eq!(asked.lock().expect("nobody failed").as_slice(), [("/sub/bind".to_owned(), question)]);
    let refused = bind(&clients, &pod(), "b").await.map_err(|why| why.to_string());
    assert_eq!(refused, Err("not there".to_owned()));
    let mut other = extender(&url);
    other.verbs.bind = None;
    assert!(matches!(bind(&[client(other).await], &pod(), "b").await, Ok(false)));
    let mut other = extender(&url);
    other.is_ignorable = true;
    assert!(matches!(bind(&[client(other).await], &pod(), "b").await, Ok(false)));
}

#[tokio::test]
async fn who_cannot_be_spoken_to_gives_no_answer() {
    let mut broken = extender("https://127.0.0.1:1");
    broken.tls.certificate = Some("bm8=".to_owned());
    broken.tls.key = Some("bm8=".to_owned());
    let clients = [client(broken).await];
    let decision =
        decide_with(&interested(&clients, &pod()), &pod(), None, &nodes(), 0, &mut Diagnosis::default())
            .await;
    assert!(
        matches!(decision, Decision::Unheard(why) if why.starts_with("Post \"https://127.0.0.1:1/filter\""))
    );
}

/// Who goes for a Pod of priority 10 that wants 4 CPUs, if the extender answers so: two Nodes have a Pod of 4 CPUs each.
async fn check_preemption(answer: fn(&str, &Value) -> Value, tell: fn(&mut Extender), expect: &str) {
    let (url, _) = serve(Answer::Json(answer)).await;
    let mut extender = extender(&url);
    extender.verbs.preempt = Some("preempt".to_owned());
    tell(&mut extender);
    let clients = [client(extender).await];
    let pod = |name: &str, priority: i32| -> Pod {
        let text = format!(
            "{{metadata: {{name: {name}, uid: {name}, namespace: d}}, spec: {{priority: {priority}, containers: \
             [{{name: c, resources: {{requests: {{cpu: '4'}}}}}}]}}}}"
        );
        serde_saphyr::from_str(&text).expect("a pod")
    };
    let mut snapshot = nodes();
    snapshot.place(&Arc::new(pod("x", 1)), "a");
    snapshot.place(&Arc::new(pod("y", 2)), "b");
    snapshot.place(&Arc::new(pod("peer", 10)), "c");
    let wants = pod("vip", 10);
    let text = match preempt_with(&interested(&clients, &wants), &wants, &mut snapshot, &[], 0).await {
        Ok(Preemption::Possible(candidate)) => format!("{} from {}", candidate.victims.len(), candidate.node),
        Ok(_) => "nobody".to_owned(),
        Err(unheard) => unheard.to_string().replace(&url, "URL"),
    };
    assert_eq!(text, expect);
}

#[tokio::test]
async fn an_extender_agrees_with_who_goes() {
    check_preemption(
        |_, question| json!({"nodeNameToMetaVictims": question["NodeNameToMetaVictims"]}),
        |_| {},
        "1 from a",
    )
    .await;
    check_preemption(
        |_, _| json!({"NodeNameToMetaVictims": {"b": {"Pods": [{"UID": "y"}]}}}),
        |_| {},
        "1 from b",
    )
    .await;
    check_preemption(
        |_, question| match question["NodeNameToVictims"]["a"]["Pods"][0]["metadata"]["name"].as_str() {
            Some("x") => json!({"NodeNameToMetaVictims": {"b": {"Pods": [{"UID": "y"}]}}}),
            _ => json!({}),
        },
        |extender| extender.has_node_cache = false,
        "1 from b",
    )
    .await;
    check_preemption(|_, _| json!({}), |_| {}, "nobody").await;
}

#[tokio::test]
async fn nobody_goes_because_an_extender_lies() {
    let stranger = "extender: URL claims to preempt pod (UID: peer) on node: b, but the pod is not found on that node, or is as important";
    check_preemption(
        |_, _| json!({"NodeNameToMetaVictims": {"b": {"Pods": [{"UID": "peer"}]}}}),
        |_| {},
        stranger,
    )
    .await;
    let elsewhere = "extender \"URL\" claims a filtered node \"c\" which is not found in the input node list";
    check_preemption(
        |_, _| json!({"NodeNameToMetaVictims": {"c": {"Pods": [{"UID": "peer"}]}}}),
        |_| {},
        elsewhere,
    )
    .await;
    let nobody = "expected at least one victim pod on node \"a\"";
    check_preemption(|_, _| json!({"NodeNameToMetaVictims": {"a": {}}}), |_| {}, nobody).await;
    check_preemption(
        |_, _| json!({"NodeNameToMetaVictims": {"c": {}}}),
        |extender| extender.is_ignorable = true,
        "1 from a",
    )
    .await;
}
