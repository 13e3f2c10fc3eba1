//! rtnetlink: how fast packets may leave a link, and links that packets are led through for that.
//!
//! Source: `linux/pkt_sched.h`, `linux/pkt_cls.h`, `linux/tc_act/tc_mirred.h`; tc-tbf(8), tc-mirred(8).

use nix::libc;

use super::overlay::new_link;
use super::route::{Route, absent_is_fine, link_header};
use super::{CREATE, DUMP, EXCL, Encoder, attributes, find_attribute, str_of, u32_of};
use crate::{Error, Result};

const HEADER_BYTES: usize = 20;
/// `TCA_KIND`, `TCA_OPTIONS`.
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
/// `TC_H_ROOT`, `TC_H_INGRESS`.
const ROOT: u32 = 0xffff_ffff;
const INGRESS: u32 = 0xffff_fff1;
/// `1:` and `ffff:`, as everybody calls them.
const ROOT_HANDLE: u32 = 0x0001_0000;
const INGRESS_HANDLE: u32 = 0xffff_0000;
const REPLACE: u16 = libc::NLM_F_REPLACE as u16;
/// `TCA_TBF_PARMS`, `TCA_TBF_RATE64`; the first is two rates of 12 bytes, limit, buffer and another buffer.
const TBF_PARAMETERS: u16 = 1;
const TBF_RATE64: u16 = 4;
const TBF_LIMIT_AT: usize = 24;
const TBF_BUFFER_AT: usize = 28;
/// `TC_LINKLAYER_ETHERNET`.
const ETHERNET: u8 = 1;
/// `TCA_U32_SEL`, `TCA_U32_ACT`, `TC_U32_TERMINAL`.
const U32_SELECTOR: u16 = 5;
const U32_ACTIONS: u16 = 7;
const U32_TERMINAL: u8 = 1;
/// `TCA_ACT_KIND`, `TCA_ACT_OPTIONS`, `TCA_MIRRED_PARMS`, in which the link is the last of seven numbers.
const ACTION_KIND: u16 = 1;
const ACTION_OPTIONS: u16 = 2;
const MIRRED_PARAMETERS: u16 = 2;
const MIRRED_LINK_AT: usize = 24;
/// `TC_ACT_STOLEN`, `TCA_EGRESS_REDIR`.
const STOLEN: u32 = 4;
const REDIRECT: u32 = 1;

/// A token bucket: packets leave a link at a rate, and so much at once after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// Bytes in a second.
    pub rate: u64,
    /// The bytes that may wait; the rest is dropped.
    pub limit: u32,
    /// The time that the rate takes for a burst, in [`TICK_NANOS`].
    pub buffer_ticks: u32,
}

/// The kernel's unit of time for this. Source: `PSCHED_SHIFT`.
pub const TICK_NANOS: u64 = 64;

impl Route {
    /// Makes an intermediate functional block, down: a link that packets of others are led through.
    pub fn create_ifb(&mut self, name: &str, mtu: u32) -> Result<()> {
        let request = new_link(name, mtu, "ifb", |_| ());
        self.0.call(request, || format!("create ifb link {name}"))
    }

    /// Says of a link what it is for, in at most 255 bytes.
    pub fn set_alias(&mut self, name: &str, alias: &str) -> Result<()> {
        let mut request = Encoder::message(libc::RTM_NEWLINK, 0);
        request
            .raw(&link_header(libc::AF_UNSPEC, 0, 0, 0))
            .str(libc::IFLA_IFNAME, name)
            .bytes(libc::IFLA_IFALIAS, alias.as_bytes());
        self.0.call(request, || format!("set the alias of link {name}"))
    }

    /// Lets packets leave a link at this rate, in place of the rate before.
    ///
    /// # Errors
    /// `ENOENT` if the kernel has no `tbf`.
    pub fn set_token_bucket(&mut self, link: u32, bucket: &TokenBucket) -> Result<()> {
        let mut request = Encoder::message(libc::RTM_NEWQDISC, CREATE | REPLACE);
        request.raw(&header(link, ROOT_HANDLE, ROOT, 0)).str(KIND, "tbf").nest(OPTIONS, |options| {
            options.bytes(TBF_PARAMETERS, &tbf_parameters(bucket));
            if u32::try_from(bucket.rate).is_err() {
                options.bytes(TBF_RATE64, &bucket.rate.to_ne_bytes());
            }
        });
        self.0.call(request, || format!("set the rate of link {link}"))
    }

    /// The rate at which packets leave a link, if it has one.
    pub fn token_bucket(&mut self, link: u32) -> Result<Option<TokenBucket>> {
        let mut request = Encoder::message(libc::RTM_GETQDISC, 0);
        request.raw(&header(link, 0, 0, 0));
        let answers = self.0.request(request, DUMP, || format!("list the queues of link {link}"))?;
        // Older kernels list those of all links.
        let of_link = answers.iter().filter(|answer| link_of(answer) == Some(link));
        Ok(of_link.filter_map(|answer| parse_token_bucket(answer)).next())
    }

    /// Leads everything that comes in by a link out of another, in place of where it was led before.
    ///
    /// # Errors
    /// `ENOENT` if the kernel lacks `ingress`, `u32` or `mirred`.
    pub fn redirect_incoming(&mut self, link: u32, to: u32) -> Result<()> {
        let doing = || format!("redirect what comes in by link {link}");
        let mut old = Encoder::message(libc::RTM_DELQDISC, 0);
        old.raw(&header(link, INGRESS_HANDLE, INGRESS, 0));
        match self.0.call(old, doing) {
            // So says the kernel if there is none.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            deleted => absent_is_fine(deleted)?,
        }
        let mut queue = Encoder::message(libc::RTM_NEWQDISC, CREATE | EXCL);
        queue.raw(&header(link, INGRESS_HANDLE, INGRESS, 0)).str(KIND, "ingress");
        self.0.call(queue, doing)?;
        // The first filter, for every protocol.
        let all = u32::from((libc::ETH_P_ALL as u16).to_be()) | 1 << 16;
        let mut filter = Encoder::message(libc::RTM_NEWTFILTER, CREATE | EXCL);
        filter.raw(&header(link, 0, INGRESS_HANDLE, all)).str(KIND, "u32").nest(OPTIONS, |options| {
            options.bytes(U32_SELECTOR, &any_packet()).nest(U32_ACTIONS, |actions| {
                actions.nest(1, |action| {
                    action.str(ACTION_KIND, "mirred").nest(ACTION_OPTIONS, |options| {
                        let numbers = [0, 0, STOLEN, 0, 0, REDIRECT, to];
                        options.bytes(MIRRED_PARAMETERS, &numbers.map(u32::to_ne_bytes).concat());
                    });
                });
            });
        });
        self.0.call(filter, doing)
    }

    /// The link that what comes in by this one is led to; 0 if that is gone.
    pub fn incoming_redirected_to(&mut self, link: u32) -> Result<Option<u32>> {
        let mut request = Encoder::message(libc::RTM_GETTFILTER, 0);
        request.raw(&header(link, 0, INGRESS_HANDLE, 0));
        let answers = self.0.request(request, DUMP, || format!("list the filters of link {link}"))?;
        Ok(answers.iter().find_map(|answer| parse_redirect(answer)))
    }
}

impl Error {
    /// `true` if the kernel does not know the kind of link, queue, filter or action that it is asked for.
    pub fn is_unknown_kind(&self) -> bool {
        matches!(self.raw_os_error(), Some(libc::ENOENT | libc::EOPNOTSUPP))
    }
}

fn header(link: u32, handle: u32, parent: u32, info: u32) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    for (at, value) in [link, handle, parent, info].into_iter().enumerate() {
        header[4 + 4 * at..8 + 4 * at].copy_from_slice(&value.to_ne_bytes());
    }
    header
}

fn tbf_parameters(bucket: &TokenBucket) -> Vec<u8> {
    let mut bytes = vec![0, ETHERNET, 0, 0, 0, 0, 0, 0];
    bytes.extend(u32::try_from(bucket.rate).unwrap_or(u32::MAX).to_ne_bytes());
    // No rate of peaks.
    bytes.resize(TBF_LIMIT_AT, 0);
    bytes.extend(bucket.limit.to_ne_bytes());
    bytes.extend(bucket.buffer_ticks.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes
}

/// `tc_u32_sel` with one key, of which nothing has to be equal.
fn any_packet() -> [u8; 32] {
    let mut selector = [0; 32];
    (selector[0], selector[2]) = (U32_TERMINAL, 1);
    selector
}

pub(super) fn link_of(answer: &[u8]) -> Option<u32> {
    u32_of(answer.get(4..)?)
}

pub(super) fn parse_token_bucket(answer: &[u8]) -> Option<TokenBucket> {
    let all = answer.get(HEADER_BYTES..)?;
    let (kind, options) = (find_attribute(all, KIND)?, find_attribute(all, OPTIONS)?);
    let parent = u32_of(answer.get(12..)?)?;
    if str_of(kind) != "tbf" || parent != ROOT {
        return None;
    }
    let parameters = find_attribute(options, TBF_PARAMETERS)?;
    let wide = find_attribute(options, TBF_RATE64).and_then(|value| value.first_chunk());
    Some(TokenBucket {
        rate: wide.map_or(u64::from(u32_of(parameters.get(8..)?)?), |bytes| u64::from_ne_bytes(*bytes)),
        limit: u32_of(parameters.get(TBF_LIMIT_AT..)?)?,
        buffer_ticks: u32_of(parameters.get(TBF_BUFFER_AT..)?)?,
    })
}

pub(super) fn parse_redirect(answer: &[u8]) -> Option<u32> {
    let options = find_attribute(answer.get(HEADER_BYTES..)?, OPTIONS)?;
    attributes(find_attribute(options, U32_ACTIONS)?).find_map(|(_, action)| {
        let kind = find_attribute(action, ACTION_KIND)?;
        let parameters = find_attribute(find_attribute(action, ACTION_OPTIONS)?, MIRRED_PARAMETERS)?;
        if str_of(kind) == "mirred" { u32_of(parameters.get(MIRRED_LINK_AT..)?) } else { None }
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::super::VethPeer;
    use super::*;
    use crate::netns::NetNs;

    #[test]
    fn rates_and_redirects_are_read_back_as_they_were_set() {
        assert!(nix::unistd::geteuid().is_root(), "this test makes network namespaces: run it as root");
        let (host, pod) = (NetNs::anonymous().unwrap(), NetNs::anonymous().unwrap());
        host.run(|| {
            let mut route = Route::open()?;
            let peer = VethPeer { name: "eth0", namespace: pod.as_fd(), mac: None };
            route.create_veth("v0", None, None, &peer)?;
            route.create_ifb("ifb7", 1400)?;
            assert!(route.create_ifb("ifb7", 1400).unwrap_err().is_exists());
            route.set_alias("ifb7", "c/eth0")?;
            let (veth, ifb) = (route.index("v0")?, route.link("ifb7")?.unwrap());
            let found = (ifb.kind.as_str(), ifb.alias.as_str(), ifb.mtu, ifb.is_up);
            assert_eq!(found, ("ifb", "c/eth0", 1400, false));
            assert_eq!(route.token_bucket(veth)?, None);
            for rate in [125, 1_000_000, u64::from(u32::MAX), u64::from(u32::MAX) + 1, 125_000_000_000_000] {
                let bucket = TokenBucket { rate, limit: 100_000, buffer_ticks: 1_000_000 };
                route.set_token_bucket(veth, &bucket)?;
                assert_eq!(route.token_bucket(veth)?, Some(bucket));
            }
            assert_eq!(route.token_bucket(ifb.index)?, None, "that of another link is not its own");
            assert_eq!(route.incoming_redirected_to(veth)?, None);
            for _ in 0..2 {
                route.redirect_incoming(veth, ifb.index)?;
                assert_eq!(route.incoming_redirected_to(veth)?, Some(ifb.index));
            }
            route.delete_link("ifb7")?;
            assert_eq!(route.incoming_redirected_to(veth)?, Some(0));
            Ok(())
        })
        .unwrap();
        let peer = pod.run(|| Route::open()?.link("eth0")).unwrap().unwrap().peer;
        assert_eq!(peer, Some(host.run(|| Route::open()?.index("v0")).unwrap()));
    }
}
