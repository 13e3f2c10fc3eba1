//! Pods that belong to objects of a custom kind: they stay as long as their owner does, and go with it, also when it goes
//! because its kind does.

use std::sync::Arc;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::client::{AGAIN_AFTER, Api, NAMESPACE, TIMEOUT};
use super::oracle::is_ready;
use super::shapes::STEADY;
use super::view::View;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const DEFINITION: &str = "owners.torture.example.com";

/// What is deleted.
#[derive(Clone, Copy, Debug)]
enum End {
    Owner(&'static str),
    Kind,
}

const ENDS: [End; 3] = [End::Owner("Background"), End::Owner("Foreground"), End::Kind];

/// Has an owner come and go with its Pod, again and again, while `goes_on`.
pub(super) async fn come_and_go(api: Api, view: Arc<View>, goes_on: impl Fn() -> bool) {
    for (number, end) in ENDS.iter().cycle().enumerate() {
        if !goes_on() {
            break;
        }
        let name = format!("owned-{number}");
        if let Err(error) = round(&api, &view, &name, *end).await {
            view.blame(format!("{name}, {end:?}: {error:#}"));
        }
    }
    if let Err(error) = end_kind(&api).await {
        view.blame(format!("{DEFINITION}: {error:#}"));
    }
}

async fn round(api: &Api, view: &View, name: &str, end: End) -> Result<()> {
    api.create(DEFINITIONS, &definition()).await?;
    let owners = format!("/apis/torture.example.com/v1/namespaces/{NAMESPACE}/owners");
    api.create(
        &owners,
        &json!({ "apiVersion": "torture.example.com/v1", "kind": "Owner", "metadata": { "name": name } }),
    )
    .await?;
    let owner = api.list(&owners).await?.into_iter().find(|owner| owner["metadata"]["name"] == name);
    let owner = owner.context("it was made, and is not listed")?;
    let mut pod = (STEADY.first().context("there are no shapes")?.pod)(name);
    pod["metadata"]["ownerReferences"] = json!([{ "apiVersion": "torture.example.com/v1", "kind": "Owner", "name": name,
        "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true }]);
    api.create(&api.collection("pods"), &pod).await?;
    let told = |what: &'static str| move |_: &_| what.to_owned();
    let is_there = |pods: &super::view::Pods, _: &super::view::Excuses<'_>| {
        pods.get(name).is_some_and(|pod| is_ready(pod)).then_some(())
    };
    view.until("its Pod being Ready", is_there, told("it is not there, or not Ready")).await?;
    match end {
        End::Owner(policy) => {
            api.delete(&format!("{owners}/{name}"), &json!({ "propagationPolicy": policy })).await?;
        }
        // Nobody can say of an owner whose kind is not served that it is gone: a collector that was killed meanwhile finds
        // out when the kind is there again, as upstream's does.
        End::Kind => {
            end_kind(api).await?;
            api.create(DEFINITIONS, &definition()).await?;
        }
    }
    let is_gone =
        |pods: &super::view::Pods, _: &super::view::Excuses<'_>| (!pods.contains_key(name)).then_some(());
    view.until("its Pod's end", is_gone, told("it is still there")).await
}

/// Deletes the definition, and waits until it is gone.
async fn end_kind(api: &Api) -> Result<()> {
    api.delete(&format!("{DEFINITIONS}/{DEFINITION}"), &json!({})).await?;
    let gone = async {
        while api.list(DEFINITIONS).await?.iter().any(|one| one["metadata"]["name"] == DEFINITION) {
            tokio::time::sleep(AGAIN_AFTER).await;
        }
        Ok(())
    };
    tokio::time::timeout(TIMEOUT, gone).await.context("its kind does not go")?
}

fn definition() -> Value {
    let version = json!({ "name": "v1", "served": true, "storage": true,
        "schema": { "openAPIV3Schema": { "type": "object" } } });
    json!({ "metadata": { "name": DEFINITION }, "spec": { "group": "torture.example.com", "scope": "Namespaced",
        "names": { "plural": "owners", "singular": "owner", "kind": "Owner", "listKind": "OwnerList" },
        "versions": [version] } })
}
