//! The plugins that a profile asks at each point: upstream's defaults, less what is disabled, with what is enabled.
//!
//! Source: `mergePlugins`, `expandMultiPointPlugins` and `getValidScoreWeights` of kube-scheduler.

use std::collections::BTreeMap;

use super::error::ProfileError;
use super::file::{Plugin, PluginSet, Plugins};
use crate::arguments::Arguments;
use crate::profile::{PLUGINS, Point, Profile};

const ALL: &str = "*";

impl Point {
    /// What upstream's messages call the interface of plugins that are asked here: `PreFilterPlugin`.
    fn interface(self) -> String {
        let (first, rest) = self.field().split_at(1);
        format!("{}{rest}Plugin", first.to_uppercase())
    }

    /// What it is called in the file.
    pub(super) fn field(self) -> &'static str {
        match self {
            Self::PreFilter => "preFilter",
            Self::Filter => "filter",
            Self::PostFilter => "postFilter",
            Self::Reserve => "reserve",
            Self::PreScore => "preScore",
            Self::Score => "score",
            Self::PreBind => "preBind",
            Self::Bind => "bind",
            Self::PostBind => "postBind",
            Self::Permit => "permit",
            Self::PreEnqueue => "preEnqueue",
            Self::QueueSort => "queueSort",
        }
    }

    /// What the file says of it.
    pub(super) fn of(self, plugins: &Plugins) -> &PluginSet {
        match self {
            Self::PreFilter => &plugins.pre_filter,
            Self::Filter => &plugins.filter,
            Self::PostFilter => &plugins.post_filter,
            Self::Reserve => &plugins.reserve,
            Self::PreScore => &plugins.pre_score,
            Self::Score => &plugins.score,
            Self::PreBind => &plugins.pre_bind,
            Self::Bind => &plugins.bind,
            Self::PostBind => &plugins.post_bind,
            Self::Permit => &plugins.permit,
            Self::PreEnqueue => &plugins.pre_enqueue,
            Self::QueueSort => &plugins.queue_sort,
        }
    }
}

/// The profile `name`, as its plugins say.
///
/// # Errors
/// What cannot be, as upstream puts it when it sets a profile up.
pub(super) fn profile(name: &str, given: &Plugins, arguments: Arguments) -> Result<Profile, ProfileError> {
    let everywhere = merged(&given.multi_point);
    let mut asked = BTreeMap::new();
    for point in Point::ALL {
        asked.insert(point, at(point, point.of(given), &everywhere)?);
    }
    let sorting = asked.get(&Point::QueueSort).map_or(0, Vec::len);
    if sorting != 1 {
        return Err(ProfileError::QueueSort(name.to_owned(), sorting));
    }
    if asked.get(&Point::Bind).is_none_or(Vec::is_empty) {
        return Err(ProfileError::NoBind(name.to_owned()));
    }
    check_needs(&asked)?;
    let weight = |name: &str| {
        let mut said = given.score.enabled().iter().chain(&everywhere);
        let weight = said.find(|plugin| plugin.name == name).and_then(|plugin| plugin.weight);
        i64::from(weight.filter(|weight| *weight != 0).unwrap_or(1))
    };
    Ok(Profile::new(name.to_owned(), asked, weight, arguments))
}

/// What is enabled at every point where it can be asked: the defaults in their places, then what was added.
fn merged(given: &PluginSet) -> Vec<Plugin> {
    let mut left: Vec<&Plugin> = given.enabled().iter().collect();
    let mut all = Vec::new();
    if !given.disables(ALL) {
        for row in PLUGINS.iter().filter(|row| row.is_default() && !given.disables(row.name)) {
            // Of several the last one counts; the others are found to be too many.
            let own = left.iter().rposition(|plugin| plugin.name == row.name).map(|index| left.remove(index));
            let weight = (row.weight != 0).then_some(row.weight);
            let default = Plugin { name: row.name.to_owned(), weight };
            all.push(own.cloned().unwrap_or(default));
        }
    }
    all.extend(left.into_iter().cloned());
    all
}

/// What is asked at one point: what stands there and everywhere, then what stands everywhere, then what stands there only.
fn at(point: Point, given: &PluginSet, everywhere: &[Plugin]) -> Result<Vec<&'static str>, ProfileError> {
    let mut here: Vec<&'static str> = Vec::new();
    for plugin in given.enabled() {
        let row = find(&plugin.name, point)?;
        if !row.points.contains(&point) {
            return Err(ProfileError::NotThere(plugin.name.clone(), point.interface()));
        }
        add(&mut here, row.name, point)?;
    }
    if given.disables(ALL) {
        return Ok(here);
    }
    let (mut overridden, mut rest) = (Vec::new(), Vec::new());
    for plugin in everywhere {
        let row = find(&plugin.name, point)?;
        if !row.points.contains(&point) || given.disables(row.name) {
            continue;
        }
        if here.contains(&row.name) {
            overridden.push(row.name);
        } else {
            add(&mut rest, row.name, point)?;
        }
    }
    let (first, last): (Vec<_>, Vec<_>) = here.into_iter().partition(|name| overridden.contains(name));
    Ok(first.into_iter().chain(rest).chain(last).collect())
}

fn find(name: &str, point: Point) -> Result<&'static crate::profile::Plugin, ProfileError> {
    let row = PLUGINS.iter().find(|row| row.name == name);
    row.ok_or_else(|| ProfileError::NoPlugin(name.to_owned(), point.interface()))
}

fn add(list: &mut Vec<&'static str>, name: &'static str, point: Point) -> Result<(), ProfileError> {
    if list.contains(&name) {
        return Err(ProfileError::Twice(name.to_owned(), point.interface()));
    }
    list.push(name);
    Ok(())
}

/// A plugin that looks at each Node has looked at the Pod before. Upstream takes such a profile, and then fails with every
/// Pod: `reading "PreFilterNodePorts" from cycleState: not found`.
fn check_needs(asked: &BTreeMap<Point, Vec<&'static str>>) -> Result<(), ProfileError> {
    let at = |point: Point| asked.get(&point).map(Vec::as_slice).unwrap_or_default();
    let pairs = [(Point::Filter, Point::PreFilter), (Point::Score, Point::PreScore)];
    for (later, before) in pairs {
        for name in at(later) {
            let row = PLUGINS.iter().find(|row| row.name == *name);
            let needs = row.is_some_and(|row| row.points.contains(&before));
            if needs && !at(before).contains(name) {
                let (later, before) = (later.interface(), before.interface());
                return Err(ProfileError::Needs { plugin: (*name).to_owned(), later, before });
            }
        }
    }
    Ok(())
}
