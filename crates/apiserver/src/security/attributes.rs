//! A request as authorizers see it.

use auth::Attributes;

use crate::request_info::RequestInfo;

/// A request as authorizers see it.
pub fn attributes(info: &RequestInfo) -> Attributes {
    let Some(resource) = &info.resource else {
        return Attributes {
            verb: info.method.as_str().to_ascii_lowercase(),
            path: info.path.clone(),
            ..Attributes::default()
        };
    };
    Attributes {
        verb: resource.verb.as_str().to_owned(),
        group: resource.group.clone(),
        version: resource.version.clone(),
        resource: resource.resource.clone(),
        subresource: resource.subresource.clone(),
        namespace: resource.namespace.clone(),
        name: selected_name(info).unwrap_or_else(|| resource.name.clone()),
        path: info.path.clone(),
        field_selector: info.query.get("fieldSelector").unwrap_or_default().to_owned(),
        label_selector: label_selector(info).to_owned(),
        is_resource: true,
    }
}

fn is_of_many(verb: &str) -> bool {
    matches!(verb, "list" | "watch" | "deletecollection")
}

/// What labels a request for many objects asks for.
fn label_selector(info: &RequestInfo) -> &str {
    let is_asked = info.resource.as_ref().is_some_and(|resource| is_of_many(resource.verb.as_str()));
    let asked = is_asked.then(|| info.query.get("labelSelector")).flatten();
    asked.unwrap_or_default()
}

/// A list of the one object that `fieldSelector=metadata.name=` names is a request for that object.
fn selected_name(info: &RequestInfo) -> Option<String> {
    let resource = info.resource.as_ref().filter(|resource| resource.name.is_empty())?;
    if !is_of_many(resource.verb.as_str()) {
        return None;
    }
    let selector = machinery::fields::Selector::parse(info.query.get("fieldSelector")?).ok()?;
    selector.required("metadata.name").map(str::to_owned)
}
