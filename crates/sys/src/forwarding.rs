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
    let known: Vec<&str> =
        earlier.lines().filter_map(|line| line.split_once(' ')).map(|(key, _)| key).collect();
    before.retain(|(key, _)| !known.contains(&key.as_str()));
    let new = before.iter().map(|(key, value)| format!("{key} {value}\n")).collect::<String>();
    (format!("{earlier}{new}"), wanted)
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
    for line in text.lines() {
        match line.split_once(' ') {
            None => set_sysctl(IPV4, line)?,
            Some((IPV6, value)) => set_sysctl(IPV6, value)?,
            // Its link may be gone.
            Some((key, value)) if sysctl(key).is_ok() => set_sysctl(key, value)?,
            Some(_) => {}
        }
    }
    match fs::remove_file(record) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).doing(|| format!("remove {}", record.display()))
        }
        _ => Ok(()),
    }
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
        let rows: [Row<'_>; 6] = [
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
