//! The identity of the object: name and namespace come from the URL, and the body must agree; or the name is made here.

use machinery::metadata::{self, Metadata};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::request::Authorized;
use crate::status::{Error, Result};

/// The longest prefix of a generated name; the rest is chance.
const GENERATED_PREFIX_BYTES_MAX: usize = 58;
/// How many characters of chance a generated name ends with.
const GENERATED_SUFFIX_LEN: usize = 5;

/// Namespace and name come from the URL; the body must agree.
///
/// # Errors
/// 400 if it does not.
pub fn take(request: &Authorized, object: &mut Value) -> Result<()> {
    take_namespace(request, object)?;
    if !request.resource.name.is_empty() {
        let name = Metadata::of(object).name();
        if !name.is_empty() && name != request.resource.name {
            return Err(name_mismatch(name, &request.resource.name));
        }
        metadata::set(object, "name", request.resource.name.as_str());
    }
    Ok(())
}

/// The namespace of the URL goes into the object.
///
/// # Errors
/// 400 if the object says another one.
pub fn take_namespace(request: &Authorized, object: &mut Value) -> Result<()> {
    let sent = Metadata::of(object).namespace();
    if !request.kind.is_namespaced() {
        metadata::remove(object, "namespace");
        return Ok(());
    }
    let namespace = request.resource.namespace.as_str();
    if namespace.is_empty() {
        return Err(Error::bad_request("an empty namespace may not be set during creation"));
    }
    if !sent.is_empty() && sent != namespace {
        return Err(Error::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    metadata::set(object, "namespace", namespace);
    Ok(())
}

/// The name in the body must be that in the URL.
///
/// # Errors
/// 400 if it is another one, or none.
pub fn check_name(request: &Authorized, name: &str) -> Result<()> {
    let url = &request.resource.name;
    if name.is_empty() {
        return Err(Error::bad_request(format!(
            "the name of the object ({url} based on URL) was undeterminable: name must be provided"
        )));
    }
    if name != url {
        return Err(name_mismatch(name, url));
    }
    Ok(())
}

/// 400: URL and body disagree about the name.
fn name_mismatch(object: &str, url: &str) -> Error {
    Error::bad_request(format!(
        "the name of the object ({object}) does not match the name on the URL ({url})"
    ))
}

/// `true` if the object's name is yet to be made.
pub fn is_generated(object: &Value) -> bool {
    let metadata = Metadata::of(object);
    metadata.name().is_empty() && !metadata.generate_name().is_empty()
}

/// Names the object: its prefix, and chance.
pub fn generate_name(cluster: &Cluster, object: &mut Value) {
    let mut base = Metadata::of(object).generate_name().to_owned();
    let mut cut = base.len().min(GENERATED_PREFIX_BYTES_MAX);
    while !base.is_char_boundary(cut) {
        cut -= 1;
    }
    base.truncate(cut);
    metadata::set(object, "name", format!("{base}{}", cluster.random.name_suffix(GENERATED_SUFFIX_LEN)));
}
