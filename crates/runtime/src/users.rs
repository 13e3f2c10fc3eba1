//! Who a container's process is: names from the image's own `/etc/passwd` and `/etc/group`.

use std::io::Read;
use std::path::Path;

/// Largest passwd or group file that is read.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The identity of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
    /// From the passwd file; `/` for who is not in there.
    pub(crate) home: String,
}

/// Who was asked for. Source: CRI's `LinuxContainerSecurityContext` and the image's `User`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted<'a> {
    /// `user`, `uid`, `user:group` in any mixture; empty is root.
    pub(crate) user: &'a str,
    /// Overrides the group.
    pub(crate) group: Option<u32>,
    /// Beside those of the image.
    pub(crate) supplemental: &'a [i64],
    /// Whether groups that the image names are added (policy Merge).
    pub(crate) merge_image_groups: bool,
}

/// Looks the user up in the container's root file system.
///
/// # Errors
/// A message for people if a name is not there.
pub(crate) fn resolve(rootfs: &Path, wanted: &Wanted<'_>) -> Result<User, String> {
    resolve_in(&read(rootfs, "/etc/passwd"), &read(rootfs, "/etc/group"), wanted)
}

fn resolve_in(passwd: &str, group: &str, wanted: &Wanted<'_>) -> Result<User, String> {
    let (user, image_group) = wanted.user.split_once(':').unwrap_or((wanted.user, ""));
    let user = if user.is_empty() { "0" } else { user };
    let entry = fields(passwd).find(|entry| entry.first() == Some(&user) || entry.get(2) == Some(&user));
    let uid = entry.as_ref().and_then(|entry| entry.get(2)?.parse().ok()).or_else(|| user.parse().ok());
    let uid = uid.ok_or_else(|| format!("unable to find user {user}: no matching entries in passwd file"))?;
    let own_gid = entry.as_ref().and_then(|entry| entry.get(3)?.parse().ok());
    let named = (!image_group.is_empty()).then(|| find_group(group, image_group)).transpose()?;
    let gid = wanted.group.or(named).or(own_gid).unwrap_or(0);
    let mut groups: Vec<u32> = vec![gid];
    groups.extend(wanted.supplemental.iter().filter_map(|id| u32::try_from(*id).ok()));
    if let Some(name) = entry.as_ref().and_then(|entry| entry.first()).filter(|_| wanted.merge_image_groups) {
        groups.extend(groups_of(group, name));
    }
    groups.sort_unstable();
    groups.dedup();
    let home = entry.and_then(|entry| entry.get(5).copied()).filter(|home| !home.is_empty()).unwrap_or("/");
    Ok(User { uid, gid, groups, home: home.to_owned() })
}

fn find_group(file: &str, name: &str) -> Result<u32, String> {
    let entry = fields(file).find(|entry| entry.first() == Some(&name));
    let gid = entry.and_then(|entry| entry.get(2)?.parse().ok()).or_else(|| name.parse().ok());
    gid.ok_or_else(|| format!("unable to find group {name}: no matching entries in group file"))
}

fn groups_of<'a>(file: &'a str, user: &'a str) -> impl Iterator<Item = u32> + 'a {
    fields(file)
        .filter(move |entry| {
            entry.get(3).is_some_and(|members| members.split(',').any(|member| member == user))
        })
        .filter_map(|entry| entry.get(2)?.parse().ok())
}

fn fields(file: &str) -> impl Iterator<Item = Vec<&str>> {
    file.lines().filter(|line| !line.starts_with('#')).map(|line| line.trim().split(':').collect())
}

/// A file that is not there is empty: many images have none.
fn read(rootfs: &Path, path: &str) -> String {
    let mut text = Vec::new();
    let file = sys::descriptors::open_in_root(rootfs, Path::new(path));
    match file.map(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut text)) {
        Ok(Ok(_)) => String::from_utf8_lossy(&text).into_owned(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_number() {
        let passwd = "root:x:0:0::/root:/bin/sh\nweb:x:33:34::/:/bin/false\n";
        let group = "root:x:0:\nwww:x:34:\nlogs:x:4:web,other\n";
        let check = |user: &str, expect: Result<(u32, u32, &[u32]), &str>| {
            let wanted = Wanted { user, merge_image_groups: true, ..Wanted::default() };
            let found = resolve_in(passwd, group, &wanted);
            let found = found.map(|user| (user.uid, user.gid, user.groups));
            let expect = expect.map(|(uid, gid, groups)| (uid, gid, groups.to_vec()));
            assert_eq!(found, expect.map_err(str::to_owned), "{user}");
        };
        check("", Ok((0, 0, &[0])));
        check("web", Ok((33, 34, &[4, 34])));
        check("33", Ok((33, 34, &[4, 34])));
        check("1000", Ok((1000, 0, &[0])));
        check("web:logs", Ok((33, 4, &[4])));
        check("1000:7", Ok((1000, 7, &[7])));
        check("nobody", Err("unable to find user nobody: no matching entries in passwd file"));
    }
}
