//! The user of a container's process: names from the image's own `/etc/passwd` and `/etc/group`.
//!
//! A number is an id and never a name, whatever the image calls its users: otherwise the image would decide who a
//! Pod's `runAsUser` is. No id is outside of [`ID_MAX`]: to setresuid(2), 2^32-1 means "as before", which is root.

use std::io::Read;
use std::path::Path;

use crate::refusal::Refusal;

/// Largest passwd or group file that is read.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// The largest uid and gid, as the API's and runc's.
const ID_MAX: u32 = i32::MAX as u32;

/// The identity of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
    /// From the passwd file; `/` for who is not in there.
    pub(crate) home: String,
}

/// Whom a process is to run as.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Who<'a> {
    /// `runAsUser`.
    Uid(i64),
    /// The image's `User`: `user`, `uid`, `user:group` in any mixture; empty is root.
    Text(&'a str),
}

/// Who was asked for. Source: CRI's `LinuxContainerSecurityContext` and the image's `User`.
#[derive(Clone, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) who: Who<'a>,
    /// Overrides the group.
    pub(crate) group: Option<i64>,
    /// Beside those of the image.
    pub(crate) supplemental: &'a [i64],
    /// Whether groups that the image names are added (policy Merge).
    pub(crate) merge_image_groups: bool,
}

/// Looks the user up in the container's root file system.
///
/// # Errors
/// A name is not there, or a number is none that a user or group can have.
pub(crate) fn resolve(rootfs: &Path, wanted: &Wanted<'_>) -> Result<User, Refusal> {
    resolve_in(&read(rootfs, "/etc/passwd"), &read(rootfs, "/etc/group"), wanted)
}

/// Whether an image's user or group is a number: then it is an id, and no name.
pub(crate) fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn resolve_in(passwd: &str, group: &str, wanted: &Wanted<'_>) -> Result<User, Refusal> {
    let (user, image_group) = match wanted.who {
        Who::Uid(uid) => (id_of("user", uid)?.to_string(), ""),
        Who::Text(text) => {
            let (user, group) = text.split_once(':').unwrap_or((text, ""));
            (if user.is_empty() { "0" } else { user }.to_owned(), group)
        }
    };
    let asked = is_number(&user).then(|| id("user", &user)).transpose()?;
    let entry = fields(passwd).find(|entry| match asked {
        Some(uid) => has_id(entry, uid),
        None => entry.first() == Some(&user.as_str()),
    });
    let uid = match (asked, &entry) {
        (Some(uid), _) => uid,
        (None, Some(entry)) => id("user", entry.get(2).unwrap_or(&""))?,
        (None, None) => {
            let why = format!("unable to find user {user}: no matching entries in passwd file");
            return Err(Refusal::Missing(why));
        }
    };
    let own_gid = entry.as_ref().and_then(|entry| entry.get(3)).filter(|gid| !gid.is_empty());
    let gid = match (wanted.group, image_group, own_gid) {
        (Some(gid), _, _) => id_of("group", gid)?,
        (None, "", Some(gid)) => id("group", gid)?,
        (None, "", None) => 0,
        (None, name, _) => find_group(group, name)?,
    };
    let mut groups: Vec<u32> = vec![gid];
    for id in wanted.supplemental {
        groups.push(id_of("group", *id)?);
    }
    if let Some(name) = entry.as_ref().and_then(|entry| entry.first()).filter(|_| wanted.merge_image_groups) {
        groups.extend(groups_of(group, name));
    }
    groups.sort_unstable();
    groups.dedup();
    let home = entry.and_then(|entry| entry.get(5).copied()).filter(|home| !home.is_empty()).unwrap_or("/");
    Ok(User { uid, gid, groups, home: home.to_owned() })
}

fn find_group(file: &str, name: &str) -> Result<u32, Refusal> {
    if is_number(name) {
        return id("group", name);
    }
    let entry = fields(file).find(|entry| entry.first() == Some(&name));
    let missing = || format!("unable to find group {name}: no matching entries in group file");
    let entry = entry.ok_or_else(|| Refusal::Missing(missing()))?;
    id("group", entry.get(2).unwrap_or(&""))
}

/// Whether a line of passwd or group is that of this id.
fn has_id(entry: &[&str], id: u32) -> bool {
    entry.get(2).is_some_and(|text| is_number(text) && text.parse() == Ok(id))
}

fn id(what: &str, text: &str) -> Result<u32, Refusal> {
    let number = is_number(text).then(|| text.parse().ok()).flatten();
    number.filter(|id| *id <= ID_MAX).ok_or_else(|| out_of_range(what, text))
}

fn id_of(what: &str, number: i64) -> Result<u32, Refusal> {
    let id = u32::try_from(number).ok().filter(|id| *id <= ID_MAX);
    id.ok_or_else(|| out_of_range(what, &number.to_string()))
}

fn out_of_range(what: &str, text: &str) -> Refusal {
    Refusal::Invalid(format!("{what} {text:?} must be a number between 0 and {ID_MAX}"))
}

fn groups_of<'a>(file: &'a str, user: &'a str) -> impl Iterator<Item = u32> + 'a {
    fields(file)
        .filter(move |entry| {
            entry.get(3).is_some_and(|members| members.split(',').any(|member| member == user))
        })
        .filter_map(|entry| id("group", entry.get(2)?).ok())
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

    fn check(files: (&str, &str), who: Who<'_>, expect: Result<(u32, u32, &[u32]), &str>) {
        let wanted = Wanted { who, group: None, supplemental: &[], merge_image_groups: true };
        let found = resolve_in(files.0, files.1, &wanted);
        let found =
            found.map(|user| (user.uid, user.gid, user.groups)).map_err(|refusal| refusal.to_string());
        let expect = expect.map(|(uid, gid, groups)| (uid, gid, groups.to_vec()));
        assert_eq!(found, expect.map_err(str::to_owned), "{who:?}");
    }

    #[test]
    fn users_are_found_by_name_and_number() {
        let files = (
            "root:x:0:0::/root:/bin/sh\nweb:x:33:34::/:/bin/false\nbare:x:7\n",
            "root:x:0:\nwww:x:34:\nlogs:x:4:web,other\n",
        );
        let check = |user, expect| check(files, Who::Text(user), expect);
        check("", Ok((0, 0, &[0])));
        check("web", Ok((33, 34, &[4, 34])));
        check("33", Ok((33, 34, &[4, 34])));
        check("033", Ok((33, 34, &[4, 34])));
        check("1000", Ok((1000, 0, &[0])));
        check("web:logs", Ok((33, 4, &[4])));
        check("1000:7", Ok((1000, 7, &[7])));
        check(":logs", Ok((0, 4, &[4])));
        check("bare", Ok((7, 0, &[0])));
        check("nobody", Err("unable to find user nobody: no matching entries in passwd file"));
        check("web:nobody", Err("unable to find group nobody: no matching entries in group file"));
    }

    #[test]
    fn a_number_is_an_id_whatever_the_image_calls_its_users() {
        let files = (
            "1000:x:0:0::/:/bin/sh\n+5:x:0:0::/:\nwrap:x:4294967296:0::/:\nas-before:x:4294967295:0::/:\n\
             minus:x:-1:0::/:\nsigned:x:+0:0::/:\nnone:x::0::/:\nodd:x:9:4294967295::/:\nx:x: 12:0::/:\n",
            "1000:x:0:\n7:x:0:1000\nwrap:x:4294967295:\nnone:x::\n8:x:0:x\nbig:x:4294967295:odd\n",
        );
        const RANGE: &str = "must be a number between 0 and 2147483647";
        let refused = |what: &str| format!("{what} {RANGE}");
        for uid in [1000, 12, 0, 2_147_483_647] {
            check(files, Who::Uid(uid), Ok((uid as u32, 0, &[0])));
        }
        let refused_group = refused("group \"4294967295\"");
        check(files, Who::Uid(9), Err(&refused_group));
        for uid in [-1, 2_147_483_648, 4_294_967_295, 4_294_967_296, i64::MIN] {
            let refused = refused(&format!("user \"{uid}\""));
            check(files, Who::Uid(uid), Err(&refused));
        }
        let text = |user, expect| check(files, Who::Text(user), expect);
        text("1000", Ok((1000, 0, &[0])));
        text("01000", Ok((1000, 0, &[0])));
        text("1000:1000", Ok((1000, 1000, &[1000])));
        text("1000:7", Ok((1000, 7, &[7])));
        text("+5", Ok((0, 0, &[0])));
        text("-1", Err("unable to find user -1: no matching entries in passwd file"));
        text("5:-1", Err("unable to find group -1: no matching entries in group file"));
        for (user, what) in [
            ("4294967295", "user \"4294967295\""),
            ("4294967296", "user \"4294967296\""),
            ("99999999999999999999", "user \"99999999999999999999\""),
            ("wrap", "user \"4294967296\""),
            ("as-before", "user \"4294967295\""),
            ("minus", "user \"-1\""),
            ("signed", "user \"+0\""),
            ("none", "user \"\""),
            ("odd", "group \"4294967295\""),
            ("5:4294967295", "group \"4294967295\""),
            ("5:wrap", "group \"4294967295\""),
            ("5:none", "group \"\""),
        ] {
            check(files, Who::Text(user), Err(&refused(what)));
        }
    }

    #[test]
    fn groups_that_are_asked_for_are_taken_or_refused() {
        let resolved = |group, supplemental: &[i64]| {
            let wanted = Wanted { who: Who::Uid(5), group, supplemental, merge_image_groups: true };
            resolve_in("u:x:5:6::/:", "g:x:7:u\nold:x:4294967295:u\n", &wanted)
                .map(|user| (user.gid, user.groups))
                .map_err(|refusal| refusal.to_string())
        };
        assert_eq!(resolved(None, &[9]), Ok((6, vec![6, 7, 9])));
        assert_eq!(resolved(Some(8), &[]), Ok((8, vec![7, 8])));
        assert!(resolved(Some(-1), &[]).is_err());
        assert!(resolved(Some(4_294_967_295), &[]).is_err());
        assert!(resolved(None, &[4_294_967_295]).is_err());
        assert!(resolved(None, &[-1]).is_err());
    }
}
