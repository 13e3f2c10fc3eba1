//! The mounts of a container at `/dev`, as storage and device plugins do with the host's.
//!
//! libcontainer makes nodes and links in a container's `/dev` and takes `ptmx` away there: that must not be the host's.
//! So such a mount, with those below it, is made aside in a `/dev` of the container's own, and the container's first
//! process puts it in its place when nothing is made any more. Other runtimes leave a mounted `/dev` alone.

use std::collections::HashMap;
use std::path::Path;
use std::{fs, io};

use cri::v1;
use serde_json::{Map, Value};
use sys::mount::BindOptions;

const DEV: &str = "/dev";
/// Where mounts are until they are put in their place.
const ASIDE: &str = "/dev/.aside";
/// What annotations begin with that say where a mount belongs which was made aside; the rest is where it is.
const BELONGS: &str = "knarr.dev/aside";

/// Whether the container mounts something at `/dev`.
pub(super) fn is_mounted(config: &v1::ContainerConfig) -> bool {
    config.mounts.iter().any(|mount| mount.container_path.trim_end_matches('/') == DEV)
}

/// Has mounts at `/dev` and below be made aside; gives the annotations that say where they belong.
pub(super) fn set_aside<'a>(mounts: impl Iterator<Item = &'a mut Value>) -> Map<String, Value> {
    let mut annotations = Map::new();
    for (number, mount) in mounts.enumerate() {
        let aside = format!("{ASIDE}/{number:04}");
        let place = mount["destination"].take();
        mount["destination"] = aside.clone().into();
        annotations.insert(format!("{BELONGS}{aside}"), place);
    }
    annotations
}

/// Whether a path is `/dev` or below it.
pub(super) fn is_at_or_below(path: &str) -> bool {
    Path::new(path).starts_with(DEV)
}

/// Puts what was made aside in its place, in the container and by its first process.
///
/// # Errors
/// What could not be mounted, or a place for it could not be made.
pub(crate) fn put_in_place(annotations: &HashMap<String, String>) -> io::Result<()> {
    let aside = annotations.iter().filter_map(|(key, place)| Some((key.strip_prefix(BELONGS)?, place)));
    let mut aside: Vec<(&Path, &Path)> =
        aside.map(|(path, place)| (Path::new(path), Path::new(place.as_str()))).collect();
    // In the order in which they were to be mounted: `/dev` is the first.
    aside.sort();
    let Some(((dev, _), below)) = aside.split_first() else { return Ok(()) };
    let options = BindOptions { recursive: true, ..BindOptions::default() };
    for (path, place) in below {
        let target = dev.join(place.strip_prefix(DEV).unwrap_or(place));
        make_place(path, &target)
            .map_err(|error| io::Error::new(error.kind(), format!("make {}: {error}", place.display())))?;
        sys::mount::bind(path, &target, options).map_err(io::Error::other)?;
    }
    sys::mount::bind(dev, Path::new(DEV), options).map_err(io::Error::other)
}

/// A folder for a folder, a file for everything else.
fn make_place(path: &Path, target: &Path) -> io::Result<()> {
    if target.exists() {
        return Ok(());
    }
    if path.is_dir() {
        return fs::create_dir_all(target);
    }
    target.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::File::create_new(target).map(drop)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_made_aside_is_said_to_belong_where_it_was_asked_for() {
        let mut mounts = [json!({"destination": "/dev"}), json!({"destination": "/dev/termination-log"})];
        let annotations = set_aside(mounts.iter_mut());
        assert_eq!(
            mounts.map(|mount| mount["destination"].clone()),
            ["/dev/.aside/0000", "/dev/.aside/0001"]
        );
        let expect = json!({
            "knarr.dev/aside/dev/.aside/0000": "/dev",
            "knarr.dev/aside/dev/.aside/0001": "/dev/termination-log",
        });
        assert_eq!(Value::Object(annotations), expect);
    }

    #[test]
    fn only_a_mount_of_dev_itself_is_one() {
        for (path, expect) in [("/dev", true), ("/dev/", true), ("/dev/shm", false), ("/devices", false)] {
            let mount = v1::Mount { container_path: path.into(), ..v1::Mount::default() };
            let config = v1::ContainerConfig { mounts: vec![mount], ..v1::ContainerConfig::default() };
            assert_eq!(is_mounted(&config), expect, "{path}");
        }
        assert!(is_at_or_below("/dev/shm") && !is_at_or_below("/devices"));
    }
}
