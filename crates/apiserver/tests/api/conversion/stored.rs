//! Definitions that change: another version is stored, another webhook converts, the kind goes.

use serde_json::json;

use super::*;

/// Stores new objects in this version.
async fn store_in(server: &TestServer, version: &str) {
    redefine(server, |definition| {
        for one in definition["spec"]["versions"].as_array_mut().unwrap() {
            one["storage"] = json!(one["name"] == version);
        }
    })
    .await;
}

#[tokio::test]
async fn objects_stay_in_the_version_in_which_they_were_stored_until_they_are_written() {
    let (hook, asked) = good_hook().await;
    let server = start(None).await;
    define(&server, &gears(&hook, "/convert")).await;
    make(&server, V1, &gear("v1", "a", json!({"teeth": 1}))).await;
    store_in(&server, "v2").await;
    let definition = get(&server, &format!("{DEFINITIONS}/{GEARS}")).await;
    assert_eq!(definition["status"]["storedVersions"], json!(["v1", "v2"]));
    make(&server, V2, &gear("v2", "b", json!({"cogs": 2}))).await;
    assert_eq!(take(&asked), BTreeMap::new(), "nothing is converted before somebody asks");
    let old = get(&server, V1).await;
    assert_eq!(old["items"][1]["spec"], json!({"teeth": 2, "material": "iron-v2"}));
    assert_eq!(take(&asked), BTreeMap::from([("b v2 v1".into(), 1)]));
    let new = get(&server, V2).await;
    assert_eq!(new["items"][0]["spec"], json!({"cogs": 1, "made": "iron-v1"}));
    assert_eq!(take(&asked), BTreeMap::from([("a v1 v2".into(), 1)]));
    assert_eq!(names(&get(&server, &format!("{V2}?fieldSelector=spec.cogs%3D1")).await), ["a"]);
    let mut watch = Events::of(&server, &format!("{V2}?watch=1&fieldSelector=spec.cogs%3D1")).await;
    assert_eq!(watch.told().await.1, "a");

    // A write that changes nothing moves it, for which it gets another revision; another one does nothing.
    let item = get(&server, &format!("{V2}/a")).await;
    let moved = server.call("PUT", &format!("{V2}/a"), &item.to_string()).await.body;
    assert_ne!(moved["metadata"]["resourceVersion"], item["metadata"]["resourceVersion"]);
    assert_eq!(moved["spec"], item["spec"]);
    let again = server.call("PUT", &format!("{V2}/a"), &moved.to_string()).await.body;
    assert_eq!(again, moved);
    take(&asked);
    get(&server, &format!("{V2}/a")).await;
    assert_eq!(take(&asked), BTreeMap::new(), "it is stored as it is asked for");
    assert_eq!(watch.told().await.0, "MODIFIED");

    // Then the old version is stored nowhere, which whoever has moved all says.
    let path = format!("{DEFINITIONS}/{GEARS}/status");
    let said = server.call_with("PATCH", &path, &MERGE, r#"{"status": {"storedVersions": ["v2"]}}"#).await;
    assert_eq!(said.body["status"]["storedVersions"], json!(["v2"]));
    server.stop().await;
}

#[tokio::test]
async fn what_cannot_be_converted_since_another_version_is_stored_keeps_only_itself_from_being_read() {
    let hook = HookServer::start(|_, review| {
        let is_bad = |object: &Value| object["metadata"]["name"] == "bad";
        match review["request"]["objects"].as_array().unwrap().iter().any(is_bad) {
            true => said(
                review,
                json!({"uid": review["request"]["uid"], "result": {"status": "Failure", "message": "bad"}}),
            ),
            false => said(review, response(review)),
        }
    })
    .await;
    let server = start(None).await;
    define(&server, &gears(&hook, "/convert")).await;
    for name in ["a", "bad", "c"] {
        make(&server, V1, &gear("v1", name, json!({"teeth": 1}))).await;
    }
    store_in(&server, "v2").await;
    let why = "conversion webhook for example.com/v1, Kind=Gear failed: bad";
    for name in ["a", "c"] {
        assert_eq!(get(&server, &format!("{V2}/{name}")).await["spec"]["cogs"], 1);
    }
    failed(&server.call("GET", &format!("{V2}/bad"), "").await, why, why);
    failed(&server.call("GET", V2, "").await, why, why);
    assert_eq!(names(&get(&server, V1).await), ["a", "bad", "c"], "as it is stored it can be read");
    assert_eq!(server.call("DELETE", &format!("{V1}/bad"), "").await.code, 200, "and deleted");
    assert_eq!(names(&get(&server, V2).await), ["a", "c"]);
    server.stop().await;
}

#[tokio::test]
async fn another_webhook_is_asked_at_once_and_watches_end() {
    let hook = HookServer::start(|path, review| {
        let mut response = response(review);
        for object in response["convertedObjects"].as_array_mut().unwrap() {
            object["spec"]["made"] = json!(path);
        }
        said(review, response)
    })
    .await;
    let server = start(None).await;
    define(&server, &gears(&hook, "/one")).await;
    make(&server, V1, &gear("v1", "a", json!({"teeth": 1}))).await;
    assert_eq!(get(&server, &format!("{V2}/a")).await["spec"]["made"], "/one");
    let mut watch = Events::of(&server, &format!("{V2}?watch=1")).await;
    assert_eq!(watch.told().await, event("ADDED", "a", json!({"cogs": 1, "made": "/one"})));
    let url = hook.url("/two");
    redefine(&server, |definition| {
        definition["spec"]["conversion"]["webhook"]["clientConfig"]["url"] = json!(url);
    })
    .await;
    assert_eq!(get(&server, &format!("{V2}/a")).await["spec"]["made"], "/two");
    assert!(watch.next().await.is_none(), "whoever follows looks again");
    // A change of anything else keeps what was converted, and whoever follows it.
    let mut watch = Events::of(&server, &format!("{V2}?watch=1")).await;
    assert_eq!(watch.told().await.0, "ADDED");
    redefine(&server, |definition| definition["spec"]["names"]["shortNames"] = json!(["gr"])).await;
    make(&server, V1, &gear("v1", "b", json!({"teeth": 1}))).await;
    assert_eq!(watch.told().await.1, "b");
    redefine(&server, |definition| definition["spec"]["conversion"] = json!({"strategy": "None"})).await;
    let plain = get(&server, &format!("{V2}/a")).await;
    assert_eq!((&plain["apiVersion"], &plain["spec"]), (&json!("example.com/v2"), &json!({})));
    server.stop().await;
}

#[tokio::test]
async fn a_definition_can_be_deleted_whatever_becomes_of_its_webhook() {
    let hook = HookServer::start(|_, _| hook_server::Answer::Hang).await;
    let server = start(None).await;
    let mut definition = gears(&hook, "/hang");
    // Nobody serves what is stored; its objects are found all the same.
    definition["spec"]["versions"][0]["served"] = json!(true);
    define(&server, &definition).await;
    make(&server, V1, &gear("v1", "a", json!({"teeth": 1}))).await;
    redefine(&server, |definition| definition["spec"]["versions"][0]["served"] = json!(false)).await;
    let path = format!("{DEFINITIONS}/{GEARS}");
    assert_eq!(server.call("DELETE", &path, "").await.code, 200);
    let gone = async {
        while server.call("GET", &path, "").await.code != 404 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), gone).await.expect("it goes");
    server.stop().await;
}
