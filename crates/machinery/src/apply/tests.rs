use super::*;
use expect_test::{Expect, expect};
use serde_json::json;

mod merges;
mod parts;

/// One kind in one version.
struct One(&'static str, &'static str);

impl Versions for One {
    fn schema(&self, api_version: &str) -> Option<SchemaRef<'_>> {
        let (group, version) = self.0.split_once('/').unwrap_or(("", self.0));
        (api_version == self.0).then(|| schema::builtin().kind(group, version, self.1)).flatten()
    }

    fn convert(&self, _: &Value, _: &str) -> Option<Value> {
        None
    }
}

const DEPLOYMENT: One = One("apps/v1", "Deployment");

/// An object and the clock of its writers.
struct World {
    kind: One,
    object: Option<Value>,
    ignored: Set<'static>,
    seconds: u8,
}

impl World {
    fn new(kind: One) -> Self {
        Self { kind, object: None, ignored: Set::of_fields(&[&["status"]]), seconds: 0 }
    }

    fn act<T>(&mut self, manager: &str, run: impl FnOnce(&Write<'_>, &Self) -> T) -> T {
        self.seconds += 1;
        let now = format!("2024-01-01T00:00:{:02}Z", self.seconds);
        let api_version = self.kind.0;
        let write = Write { manager, api_version, subresource: "", now: &now, ignored: &self.ignored };
        run(&write, self)
    }

    fn apply(&mut self, manager: &str, config: Value, on_conflict: OnConflict) -> Result<(), ApplyError> {
        let applied = self.act(manager, |write, world| {
            apply(write, &world.kind, world.object.as_ref(), &config, on_conflict)
        });
        self.object = Some(applied?);
        Ok(())
    }

    fn update(&mut self, manager: &str, mut object: Value) {
        self.act(manager, |write, world| track(write, &world.kind, world.object.as_ref(), &mut object));
        self.object = Some(object);
    }

    fn change(&mut self, manager: &str, change: impl FnOnce(&mut Value)) {
        let mut object = self.object.clone().unwrap();
        change(&mut object);
        self.update(manager, object);
    }

    fn expect(&self, expect: Expect) {
        let mut object = self.object.clone().unwrap();
        let managed = metadata::metadata_mut(&mut object).and_then(|m| m.remove("managedFields"));
        let mut lines = vec![object.to_string()];
        for entry in managed.as_ref().and_then(Value::as_array).into_iter().flatten() {
            let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
            let time = text("time").get(17..).unwrap_or("-").to_owned();
            lines.push(format!("{} {} {time} {}", text("manager"), text("operation"), entry["fieldsV1"]));
        }
        expect.assert_eq(&lines.join("\n"));
    }
}

fn map(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "b"}, "data": data})
}

fn world() -> World {
    World::new(One("v1", "ConfigMap"))
}

#[test]
fn a_create_owns_what_it_sets() {
    let mut world = world();
    let mut object = map(json!({"x": "1"}));
    object["metadata"]["labels"] = json!({"l": "m"});
    world.update("curl", object);
    world.expect(expect![[r#"
        {"apiVersion":"v1","data":{"x":"1"},"kind":"ConfigMap","metadata":{"labels":{"l":"m"},"name":"a","namespace":"b"}}
        curl Update 01Z {"f:data":{".":{},"f:x":{}},"f:metadata":{"f:labels":{".":{},"f:l":{}}}}"#]]);
}

#[test]
fn an_update_takes_over_what_it_changes_and_nothing_else() {
    let mut world = world();
    world.update("one", map(json!({"x": "1", "y": "1"})));
    world.change("two", |object| object["data"]["y"] = json!("2"));
    world.change("three", |_| {});
    world.change("one", |object| object["data"] = json!({"y": "2"}));
    world.expect(expect![[r#"
        {"apiVersion":"v1","data":{"y":"2"},"kind":"ConfigMap","metadata":{"name":"a","namespace":"b"}}
        one Update 01Z {"f:data":{}}
        two Update 02Z {"f:data":{"f:y":{}}}"#]]);
}

#[test]
fn an_apply_owns_what_it_names_and_drops_what_it_no_longer_names() {
    let mut world = world();
    world.apply("a", map(json!({"x": "1", "y": "1"})), OnConflict::Refuse).unwrap();
    world.apply("a", map(json!({"y": "2"})), OnConflict::Refuse).unwrap();
    world.expect(expect![[r#"
        {"apiVersion":"v1","data":{"y":"2"},"kind":"ConfigMap","metadata":{"name":"a","namespace":"b"}}
        a Apply 02Z {"f:data":{"f:y":{}}}"#]]);
}

#[test]
fn a_manager_that_changes_nothing_has_no_new_time() {
    let mut world = world();
    world.apply("a", map(json!({"x": "1", "y": "1"})), OnConflict::Refuse).unwrap();
    world.apply("b", map(json!({"x": "1"})), OnConflict::Refuse).unwrap();
    world.apply("b", map(json!({"x": "1", "y": "1"})), OnConflict::Refuse).unwrap();
    world.expect(expect![[r#"
        {"apiVersion":"v1","data":{"x":"1","y":"1"},"kind":"ConfigMap","metadata":{"name":"a","namespace":"b"}}
        b Apply - {"f:data":{"f:x":{},"f:y":{}}}
        a Apply 01Z {"f:data":{"f:x":{},"f:y":{}}}"#]]);
}

#[test]
fn a_shared_field_stays_until_its_last_applier_drops_it() {
    let mut world = world();
    world.apply("a", map(json!({"x": "1", "y": "1"})), OnConflict::Refuse).unwrap();
    world.apply("b", map(json!({"x": "1"})), OnConflict::Refuse).unwrap();
    world.apply("a", map(json!({"y": "1"})), OnConflict::Refuse).unwrap();
    world.expect(expect![[r#"
        {"apiVersion":"v1","data":{"x":"1","y":"1"},"kind":"ConfigMap","metadata":{"name":"a","namespace":"b"}}
        b Apply - {"f:data":{"f:x":{}}}
        a Apply 01Z {"f:data":{"f:y":{}}}"#]]);
    world.apply("b", map(json!({})), OnConflict::Refuse).unwrap();
    world.expect(expect![[r#"
        {"apiVersion":"v1","data":{"y":"1"},"kind":"ConfigMap","metadata":{"name":"a","namespace":"b"}}
        a Apply 01Z {"f:data":{"f:y":{}}}
        b Apply 04Z {"f:data":{}}"#]]);
}

#[test]
fn what_others_own_with_another_value_is_a_conflict_unless_forced() {
    let mut world = world();
    world.update("kubectl-create", map(json!({"x": "1", "y": "1"})));
    world.apply("b", map(json!({"x": "1"})), OnConflict::Refuse).unwrap();
    let one = world.apply("c", map(json!({"y": "2"})), OnConflict::Refuse).unwrap_err();
    assert_eq!(
        one.to_string(),
        r#"Apply failed with 1 conflict: conflict with "kubectl-create" using v1: .data.y"#
    );
    let many = world.apply("c", map(json!({"x": "2", "y": "2"})), OnConflict::Refuse).unwrap_err();
    expect![[r#"
        Apply failed with 3 conflicts: conflicts with "b":
        - .data.x
        conflicts with "kubectl-create" using v1:
        - .data.x
        - .data.y"#]]
    .assert_eq(&many.to_string());
    world.apply("c", map(json!({"x": "2", "y": "2"})), OnConflict::Force).unwrap();
    world.expect(expect![[r#"
        {"apiVersion":"v1","data":{"x":"2","y":"2"},"kind":"ConfigMap","metadata":{"name":"a","namespace":"b"}}
        c Apply 05Z {"f:data":{"f:x":{},"f:y":{}}}
        kubectl-create Update 01Z {"f:data":{}}"#]]);
}

#[test]
fn an_apply_of_the_same_changes_nothing_not_even_the_time() {
    let mut world = world();
    world.apply("a", map(json!({"x": "1"})), OnConflict::Refuse).unwrap();
    let before = world.object.clone();
    world.apply("a", map(json!({"x": "1"})), OnConflict::Refuse).unwrap();
    assert_eq!(world.object, before);
}

#[test]
fn what_was_there_before_anybody_was_tracked_has_an_owner_of_its_own() {
    let mut world = world();
    world.object = Some(map(json!({"x": "1"})));
    world.change("curl", |object| object["data"]["z"] = json!("1"));
    world.apply("a", map(json!({"y": "1"})), OnConflict::Refuse).unwrap();
    world.expect(expect![[r#"
        {"apiVersion":"v1","data":{"x":"1","y":"1","z":"1"},"kind":"ConfigMap","metadata":{"name":"a","namespace":"b"}}
        a Apply 02Z {"f:data":{"f:y":{}}}
        before-first-apply Update 02Z {"f:data":{".":{},"f:x":{},"f:z":{}}}"#]]);
}

#[test]
fn tracking_ends_with_an_empty_entry_and_invalid_entries_are_ignored() {
    let mut world = world();
    world.update("one", map(json!({"x": "1"})));
    let before = world.object.clone();
    world.change("two", |object| object["metadata"]["managedFields"] = json!([{"operation": "Guess"}]));
    assert_eq!(world.object, before);
    world.change("two", |object| object["metadata"]["managedFields"] = json!([{}]));
    assert_eq!(world.object, Some(map(json!({"x": "1"}))));
}

fn deployment(spec: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "w"}, "spec": spec})
}

#[test]
fn list_elements_have_owners_of_their_own() {
    let containers =
        |containers: Value| deployment(json!({"template": {"spec": {"containers": containers}}}));
    let mut world = World::new(DEPLOYMENT);
    world.apply("a", containers(json!([{"name": "x", "image": "1"}])), OnConflict::Refuse).unwrap();
    world
        .apply(
            "b",
            containers(json!([{"name": "y", "image": "1"}, {"name": "x", "tty": true}])),
            OnConflict::Refuse,
        )
        .unwrap();
    world.apply("a", containers(json!([{"name": "z"}])), OnConflict::Refuse).unwrap();
    world.expect(expect![[r#"
        {"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"w"},"spec":{"template":{"spec":{"containers":[{"image":"1","name":"y"},{"name":"x","tty":true},{"name":"z"}]}}}}
        b Apply 02Z {"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"x\"}":{".":{},"f:name":{},"f:tty":{}},"k:{\"name\":\"y\"}":{".":{},"f:image":{},"f:name":{}}}}}}}
        a Apply 03Z {"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"z\"}":{".":{},"f:name":{}}}}}}}"#]]);
}

#[test]
fn ignored_fields_are_nobodys() {
    let mut world = World::new(DEPLOYMENT);
    let mut object = deployment(json!({"replicas": 1}));
    object["status"] = json!({"replicas": 1});
    world.apply("a", object, OnConflict::Refuse).unwrap();
    let paths = &world.object.as_ref().unwrap()["metadata"]["managedFields"][0]["fieldsV1"];
    assert_eq!(paths, &json!({"f:spec": {"f:replicas": {}}}));
}

#[test]
fn kubectl_takes_over_what_it_had_applied_on_the_clients_side() {
    let mut world = world();
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    let mut object = map(json!({"x": "1", "y": "1"}));
    object["metadata"]["annotations"] = json!({annotation: map(json!({"x": "1"})).to_string()});
    world.update("kubectl-client-side-apply", object);
    let refused = world.apply("other", map(json!({"x": "2"})), OnConflict::Refuse);
    assert!(matches!(refused, Err(ApplyError::Conflicts(_))));
    world.apply("kubectl", map(json!({"x": "2"})), OnConflict::Refuse).unwrap();
    let recorded = &world.object.as_ref().unwrap()["metadata"]["annotations"][annotation];
    assert_eq!(recorded, &json!(format!("{}\n", map(json!({"x": "2"})))));
    let refused = world.apply("kubectl", map(json!({"x": "3", "y": "3"})), OnConflict::Refuse).unwrap_err();
    assert_eq!(
        refused.to_string(),
        r#"Apply failed with 1 conflict: conflict with "kubectl-client-side-apply" using v1: .data.y"#
    );
}
