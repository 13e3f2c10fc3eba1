//! Forwarding of packets between the host's links: turned on, with the earlier settings written down first.
//!
//! A host that forwards IPv6 takes itself for a router, and does not listen to other routers any more: it would lose the
//! default route that it has from one. Links that listen are told to go on (`accept_ra` 2).
//!
//! Source: the kernel's `ip-sysctl.rst`.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use crate::netns::{set_sysctl, sysctl};
use crate::{Doing, Result};

const IPV4: &str = "net/ipv4/ip_forward";
const IPV6: &str = "net/ipv6/conf/all/forwarding";
const IPV6_LINKS: &str = "net/ipv6/conf";
/// Entries beside the links.
const NO_LINKS: [&str; 2] = ["all", "default"];

/// Lets the host forward IPv4.
///
/// # Errors
/// The kernel refuses, or the record cannot be written.
pub fn allow_ipv4(record: Option<&Path>) -> Result<()> {
    let before = sysctl(IPV4)?;
    if before == "1" {
        return Ok(());
    }
    keep(record, &before)?;
    set_sysctl(IPV4, "1")
}

/// Lets the host forward IPv6, and go on to listen to routers where it does.
///
/// # Errors
/// The kernel refuses, or the record cannot be written.
pub fn allow_ipv6(record: Option<&Path>) -> Result<()> {
    if sysctl(IPV6)? == "1" {
        return Ok(());
    }
    let links = fs::read_dir(format!("/proc/sys/{IPV6_LINKS}")).doing(|| "list links with IPv6".into())?;
    let names = links.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut links: Vec<(String, String, String)> = Vec::new();
    for name in names.filter(|name| !NO_LINKS.contains(&name.as_str())) {
        let of_link = |what: &str| sysctl(&format!("{IPV6_LINKS}/{name}/{what}"));
        // One that is gone meanwhile forwards nothing.
        if let (Ok(forwarding), Ok(accept_ra)) = (of_link("forwarding"), of_link("accept_ra")) {
            links.push((name, forwarding, accept_ra));
        }
    }
    let earlier = record.and_then(|record| fs::read_to_string(record).ok()).unwrap_or_default();
    let (before, wanted) = plan(&links, &earlier);
    keep(record, &before)?;
    for key in wanted {
        set_sysctl(&key, "2")?;
    }
    set_sysctl(IPV6, "1")
}

/// What to write down, and which settings to change before the host forwards, for links with their `forwarding` and
/// `accept_ra`. What was written down by an attempt that was cut off is what the host had before. Pure.
fn plan(links: &[(String, String, String)], earlier: &str) -> (String, Vec<String>) {
    let key = |link: &str, what: &str| format!("{IPV6_LINKS}/{link}/{what}");
    let mut before = vec![(IPV6.to_owned(), "0")];
    let mut wanted = Vec::new();
    for (link, forwarding, accept_ra) in links {
        if forwarding == "1" {
            before.push((key(link, "forwarding"), "1"));
        } else if accept_ra == "1" {
            before.push((key(link, "accept_ra"), "1"));
            wanted.push(key(link, "accept_ra"));
        }
    }
    let known: Vec<(&str, &str)> = lines(earlier).collect();
    before.retain(|(key, _)| known.iter().all(|(known, _)| known != key));
    let new = before.iter().map(|(key, value)| (key.as_str(), *value));
    (known.iter().copied().chain(new).map(|(key, value)| format!("{key} {value}\n")).collect(), wanted)
}

fn keep(record: Option<&Path>, text: &str) -> Result<()> {
    let Some(record) = record else { return Ok(()) };
    fs::write(record, text).doing(|| format!("write {}", record.display()))
}

/// Sets everything back that a record says, and removes it. No error if there is none.
///
/// # Errors
/// The kernel refuses.
pub fn restore(record: &Path) -> Result<()> {
    let Ok(text) = fs::read_to_string(record) else { return Ok(()) };
    for (key, value) in settings(&text) {
        let is_of_link = ![IPV4, IPV6].contains(&key);
        // The link may be gone.
        if !is_of_link || sysctl(key).is_ok() {
            set_sysctl(key, value)?;
        }
    }
    match fs::remove_file(record) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).doing(|| format!("remove {}", record.display()))
        }
        _ => Ok(()),
    }
}

/// What a record says: a number alone is what IPv4 had, lines of a key and a number are of IPv6. What nobody here writes, such
/// as the half of a line, is not taken. Pure.
fn settings(text: &str) -> Vec<(&str, &str)> {
    if text.parse::<i32>().is_ok() {
        return vec![(IPV4, text)];
    }
    lines(text).collect()
}

fn lines(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')?.split_once(' '));
    lines.filter(|(key, value)| is_kept(key) && matches!(*value, "0" | "1"))
}

fn is_kept(key: &str) -> bool {
    let of_link = || {
        let (link, what) = key.strip_prefix(IPV6_LINKS)?.strip_prefix('/')?.rsplit_once('/')?;
        let is_link = !link.is_empty() && !link.contains('/') && ![".", ".."].contains(&link);
        Some(is_link && !NO_LINKS.contains(&link) && ["forwarding", "accept_ra"].contains(&what))
    };
    key == IPV6 || of_link().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::Route;
    use crate::netns::NetNs;

    /// What is the case, links with what they do and listen to, an earlier record, the new one, and what to change.
    type Row<'a> = (&'a str, &'a [(&'a str, &'a str, &'a str)], &'a str, String, &'a [&'a str]);

    #[test]
    fn links_that_listen_to_routers_go_on_and_what_was_is_written_down() {
        let all = "net/ipv6/conf/all/forwarding 0\n";
        let listening = "net/ipv6/conf/eth0/accept_ra 1\n";
        let router = "net/ipv6/conf/wg0/forwarding 1\n";
        let change = "net/ipv6/conf/eth0/accept_ra";
        let rows: [Row<'_>; 7] = [
            ("no links", &[], "", all.into(), &[]),
            ("one that listens", &[("eth0", "0", "1")], "", format!("{all}{listening}"), &[change]),
            ("one that does not", &[("eth0", "0", "0")], "", all.into(), &[]),
            ("one that listens whatever it is", &[("eth0", "0", "2")], "", all.into(), &[]),
            ("one that forwards already", &[("wg0", "1", "1")], "", format!("{all}{router}"), &[]),
            (
                "cut off after the first change",
                &[("eth0", "0", "2")],
                &format!("{all}{listening}"),
                format!("{all}{listening}"),
                &[],
            ),
            (
                "cut off while it was written down",
                &[("eth0", "0", "1")],
                &format!("{all}net/ipv6/conf/eth0/acc"),
                format!("{all}{listening}"),
                &[change],
            ),
        ];
        for (case, links, earlier, before, wanted) in rows {
            let links: Vec<_> =
                links.iter().map(|(a, b, c)| ((*a).to_owned(), (*b).to_owned(), (*c).to_owned())).collect();
            assert_eq!(
                plan(&links, earlier),
                (before, wanted.iter().map(|it| (*it).to_owned()).collect()),
                "{case}"
            );
        }
    }

    #[test]
    fn only_what_is_written_is_taken() {
        type Row = (&'static str, String, &'static [(&'static str, &'static str)]);
        const ALL: &str = "net/ipv6/conf/all/forwarding";
        let rows: &[Row] = &[
            ("IPv4", "0".into(), &[(IPV4, "0")]),
            ("another number of IPv4", "2".into(), &[(IPV4, "2")]),
            ("nothing", String::new(), &[]),
            ("a word", "yes".into(), &[]),
            ("a number in a line", "0\n".into(), &[]),
            ("two numbers", "0\n1\n".into(), &[]),
            (
                "IPv6 and its links",
                format!("{ALL} 0\nnet/ipv6/conf/wg0/forwarding 1\nnet/ipv6/conf/eth0.7/accept_ra 1\n"),
                &[(ALL, "0"), ("net/ipv6/conf/wg0/forwarding", "1"), ("net/ipv6/conf/eth0.7/accept_ra", "1")],
            ),
            ("a number among lines", format!("{ALL} 0\n0\n"), &[(ALL, "0")]),
            ("half of a key", format!("{ALL} 0\nnet/ipv6/conf/eth0/acc"), &[(ALL, "0")]),
            ("a key without its number", format!("{ALL} 0\nnet/ipv6/conf/eth0/accept_ra "), &[(ALL, "0")]),
            ("a line without its end", format!("{ALL} 0"), &[]),
            ("another number", format!("{ALL} 7\n{ALL} 1 \n{ALL}  1\n"), &[]),
            ("the setting of all links", "net/ipv6/conf/all/accept_ra 1\n".into(), &[]),
            ("another setting of a link", "net/ipv6/conf/eth0/mtu 1\n".into(), &[]),
            ("another setting", "kernel/sysrq 1\nnet/ipv4/ip_forward 1\n".into(), &[]),
            ("elsewhere", "net/ipv6/conf/../../../kernel/forwarding 1\n".into(), &[]),
            ("above", "net/ipv6/conf/../forwarding 1\nnet/ipv6/conf//forwarding 1\n".into(), &[]),
        ];
        for (case, text, expect) in rows {
            assert_eq!(settings(text), *expect, "{case}");
        }
    }

    #[test]
    fn both_families_are_forwarded_and_the_host_is_as_it_was_afterwards() {
        assert!(nix::unistd::geteuid().is_root(), "this test makes network namespaces: run it as root");
        let folder = tempfile::tempdir().unwrap();
        let [v4, v6] = ["v4", "v6"].map(|name| folder.path().join(name));
        let host = NetNs::anonymous().unwrap();
        let seen = || {
            let keys =
                ["net/ipv4/ip_forward", IPV6, "net/ipv6/conf/br/forwarding", "net/ipv6/conf/br/accept_ra"];
            keys.map(|key| sysctl(key).unwrap()).join(" ")
        };
        host.run(|| {
            let mut route = Route::open()?;
            route.create_bridge("br")?;
            assert_eq!(seen(), "0 0 0 1");
            for _ in 0..2 {
                allow_ipv4(Some(&v4))?;
                allow_ipv6(Some(&v6))?;
                assert_eq!(seen(), "1 1 1 2");
            }
            route.create_bridge("gone")?;
            route.delete_link("gone")?;
            for record in [&v4, &v6, &v4, &v6] {
                restore(record)?;
            }
            assert_eq!(seen(), "0 0 0 1");
            Ok(())
        })
        .unwrap();
    }
}
