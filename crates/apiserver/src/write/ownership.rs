//! The owners of fields: the managed fields of every write, and server-side apply.
//!
//! Managed fields are set before admission, so that what plugins fill in is nobody's, and never change what is
//! written otherwise. The rules are `machinery::apply`'s; here is what a request says about them.

use machinery::apply::set::Set;
use machinery::apply::{self, ApplyError, OnConflict, Write};
use machinery::metadata::{self, Metadata};
use resources::{StatusMetadata, Strategy};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::codec::Forms;
use crate::kinds::Part;
use crate::negotiate::Format;
use crate::request::Authorized;
use crate::status::{Error, Result};

/// The longest name of a field manager.
pub const MANAGER_BYTES_MAX: usize = 128;

/// The state of a write's managed fields: whether it has them already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// The writer owns what changes.
    Track,
    /// Server-side apply has said who owns what.
    Applied,
}

/// What writes of `part` never change: those of whole objects whose status has a subresource leave that, those of the
/// status leave all else, or what they may not change of the metadata.
fn ignored(strategy: &Strategy, part: Part) -> Set<'static> {
    let of_metadata: Vec<[&'static str; 2]> = match strategy.status_metadata {
        StatusMetadata::FreeBut(names) => names.iter().map(|name| ["metadata", *name]).collect(),
        StatusMetadata::Kept => Vec::new(),
    };
    let own = match part {
        Part::Object | Part::Partial(_) => strategy.unowned.by_object,
        Part::Status => strategy.unowned.by_status,
        Part::Approval => strategy.unowned.by_approval,
        Part::Raw => &[],
    };
    let mut paths: Vec<&[&'static str]> = own.to_vec();
    match part {
        Part::Object | Part::Partial(_) if strategy.keeps_status => paths.push(&["status"]),
        Part::Status | Part::Approval => {
            paths.push(&["spec"]);
            match strategy.status_metadata {
                StatusMetadata::Kept => paths.push(&["metadata"]),
                StatusMetadata::FreeBut(_) => paths.extend(of_metadata.iter().map(<[_; 2]>::as_slice)),
            }
        }
        Part::Object | Part::Partial(_) | Part::Raw => {}
    }
    Set::of_fields(&paths)
}

/// Sets the managed fields of what a create (`live` is absent) or an update is about to store.
///
/// If a webhook that would have to convert it fails, those who own fields in other versions keep what they own: writes in the
/// version that is stored do not need it.
pub async fn track(
    cluster: &Cluster,
    request: &Authorized,
    part: Part,
    live: Option<&Value>,
    new: &mut Value,
) {
    // What the server does on its own account is nobody's.
    if let (Part::Raw, Some(live)) = (part, live) {
        return apply::keep(live, new);
    }
    let track = |new: &mut Value| {
        with_write(cluster, request, part, |write| apply::track(write, &forms(request), live, new));
    };
    if request.kind.conversion().is_none() {
        return track(new);
    }
    loop {
        let mut tracked = new.clone();
        track(&mut tracked);
        match fetch(request).await {
            Ok(true) => {}
            Ok(false) => {
                *new = tracked;
                return;
            }
            Err(failure) => {
                let kind = request.kind.kind();
                tracing::warn!(kind, %failure, "nobody loses fields that are owned in another version");
                request.at_hand.give_up();
            }
        }
    }
}

/// Fetches what the last walk over managed fields wanted to have converted; says whether it is to be done again.
///
/// # Errors
/// 500 if something cannot be converted.
pub async fn fetch(request: &Authorized) -> Result<bool> {
    match request.kind.conversion() {
        Some(conversion) => request.at_hand.fetch(conversion).await,
        None => Ok(false),
    }
}

fn forms(request: &Authorized) -> Forms<'_> {
    Forms { kinds: &request.catalogue, kind: &request.kind, at_hand: &request.at_hand }
}

/// Applies a configuration to `live`, or to nothing.
///
/// # Errors
/// 400 if it does not fit the schema, 409 if others own fields of it.
pub fn apply_config(
    cluster: &Cluster,
    request: &Authorized,
    part: Part,
    live: Option<&Value>,
    config: &Value,
) -> Result<Value> {
    let on_conflict = match request.info.query.flag("force") {
        true => OnConflict::Force,
        false => OnConflict::Refuse,
    };
    // What the subresource does not change is not applied either, and nobody comes to own it.
    let reduced = super::preparation::partial_of(&request.kind, part).map(|strategy| strategy.only(config));
    let config = reduced.as_ref().unwrap_or(config);
    let applied = with_write(cluster, request, part, |write| {
        apply::apply(write, &forms(request), live, config, on_conflict)
    });
    applied.map_err(|failure| refused(&failure))
}

/// Lets an empty list of managed fields, which ends their tracking, survive decoding, which drops empty lists.
pub fn keep_reset(sent: &mut Value) {
    if let Some(fields) = sent.pointer_mut("/metadata/managedFields")
        && fields.as_array().is_some_and(Vec::is_empty)
    {
        *fields = json!([{}]);
    }
}

/// As [`keep_reset`], for an object that was decoded from `body`, which is parsed again only if need be.
pub fn keep_reset_of(body: &[u8], format: Format, object: &mut Value) {
    let is_named = std::str::from_utf8(body).is_ok_and(|text| text.contains("managedFields"));
    if !is_named || format == Format::Protobuf || Metadata::of(object).managed_fields().is_some() {
        return;
    }
    let sent = crate::codec::decode(format, body).unwrap_or_default();
    if sent.pointer("/metadata/managedFields").and_then(Value::as_array).is_some_and(Vec::is_empty) {
        metadata::set(object, "managedFields", json!([{}]));
    }
}

/// The error of a failed apply.
fn refused(failure: &ApplyError) -> Error {
    let mut error = Error::bad_request(failure.to_string());
    if let ApplyError::Conflicts(conflicts) = failure {
        error.code = http::StatusCode::CONFLICT;
        error.reason = crate::status::StatusReason::Own("Conflict");
        let causes = conflicts.0.iter().map(|conflict| {
            json!({
                "reason": "FieldManagerConflict",
                "message": format!("conflict with {}", conflict.manager),
                "field": conflict.field,
            })
        });
        error.details = json!({"causes": causes.collect::<Vec<_>>()});
    }
    error
}

fn with_write<T>(
    cluster: &Cluster,
    request: &Authorized,
    part: Part,
    run: impl FnOnce(&Write<'_>) -> T,
) -> T {
    let (manager, now) = (manager(request), metadata::time(cluster.clock.now()));
    run(&Write {
        manager: &manager,
        api_version: request.kind.api_version(),
        subresource: &request.resource.subresource,
        now: &now,
        ignored: &ignored(request.kind.strategy(), part),
    })
}

/// The field manager: what the client says, or its program's name.
fn manager(request: &Authorized) -> String {
    if let Some(manager) = request.info.query.get("fieldManager") {
        return manager.to_owned();
    }
    let agent =
        request.headers.get(http::header::USER_AGENT).map(|value| value.as_bytes()).unwrap_or_default();
    let agent = String::from_utf8_lossy(agent);
    let mut manager = String::new();
    for c in agent.split('/').next().unwrap_or_default().chars().filter(|c| is_printable(*c)) {
        if manager.len() + c.len_utf8() > MANAGER_BYTES_MAX {
            break;
        }
        manager.push(c);
    }
    if manager.is_empty() { "unknown".to_owned() } else { manager }
}

/// `true` if a field manager's name may have the character: anything that is seen, and the plain space.
pub fn is_printable(c: char) -> bool {
    c == ' ' || !(c.is_control() || c.is_whitespace())
}
