//! Addresses of a cluster: of Pods, Services, its DNS, its API servers, its load balancer.
//!
//! Source: `validateClusterIPFlags` and `validatePublicIPServiceClusterIPRangeIPFamilies` of kube-apiserver,
//! `newCIDRSet` and `setNodeCIDRMaskSizes` of kube-controller-manager.

use std::net::IpAddr;

use machinery::address_range::AddressRange;
use machinery::net::{Cidr, Cidrs, Family};
use serde_json::Value;

use super::UsageError;
use crate::args::{Part, ServerArgs};
use crate::controller_manager::OptionArgs;

/// The prefix length of the largest network of Services: upstream keeps 20 bits.
const SERVICE_BITS_MIN_V6: u8 = 108;
/// That of the smallest: the DNS is at the tenth address.
const SERVICE_BITS_MAX_V6: u8 = 124;
const SERVICE_BITS_MAX_V4: u8 = 28;
const BITS_MIN_V4: u8 = 8;
/// How many bits an IPv6 network has for Nodes' ranges at most. Source: `clusterSubnetMaxDiff`.
const NODE_BITS_MAX_V6: u8 = 16;
/// Networks whose addresses no link can have for others to reach.
const SPECIAL: [&str; 8] = [
    "0.0.0.0/8",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "224.0.0.0/3",
    "::/127",
    "::ffff:0.0.0.0-::ffff:255.255.255.255",
    "fe80::/10",
    "ff00::/8",
];

/// Texts with commas between them.
pub(super) fn list(addresses: &[IpAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn wrong<T>(text: String) -> Result<T, UsageError> {
    Err(UsageError(text))
}

/// Checks the networks, and the addresses that follow from them.
///
/// # Errors
/// The first that cannot be.
pub(super) fn check(args: &ServerArgs) -> Result<(), UsageError> {
    let (pods, services) = (args.cluster_cidr, args.service_cidr);
    for cidr in pods.iter() {
        network("--cluster-cidr", cidr, pod_bits(args, cidr.family())?)?;
    }
    for cidr in services.iter() {
        let bits = match cidr.family() {
            Family::V4 => (BITS_MIN_V4, SERVICE_BITS_MAX_V4),
            Family::V6 => (SERVICE_BITS_MIN_V6, SERVICE_BITS_MAX_V6),
        };
        network("--service-cidr", cidr, bits)?;
    }
    families(pods, services)?;
    if pods.overlaps(services) {
        return wrong(format!(
            "--cluster-cidr {pods} and --service-cidr {services} overlap: give Pods and Services addresses of their own"
        ));
    }
    dns(args)?;
    advertised(args)
}

/// How long the prefix of Pods' network can be: Nodes get parts of it.
fn pod_bits(args: &ServerArgs, family: Family) -> Result<(u8, u8), UsageError> {
    let given = OptionArgs::from_pairs(&args.kube_controller_manager_arg);
    let given = given.map_err(|error| UsageError(error.to_string()))?;
    let (name, usual) = match family {
        Family::V4 => ("node-cidr-mask-size-ipv4", 24),
        Family::V6 => ("node-cidr-mask-size-ipv6", 64),
    };
    let bits = given.fields.get(name).and_then(Value::as_u64).and_then(|bits| u8::try_from(bits).ok());
    let bits = bits.unwrap_or(usual);
    Ok(match family {
        Family::V4 => (BITS_MIN_V4, bits),
        Family::V6 => (bits.saturating_sub(NODE_BITS_MAX_V6), bits),
    })
}

fn network(flag: &str, cidr: Cidr, (least, most): (u8, u8)) -> Result<(), UsageError> {
    if !(least..=most).contains(&cidr.bits()) {
        return wrong(format!(
            "{flag} {cidr} must be a network with a prefix length between {least} and {most}"
        ));
    }
    if cidr != cidr.network() {
        return wrong(format!("{flag} {cidr} must be a network's first address: {}", cidr.network()));
    }
    if special(cidr.into()).is_some() {
        return wrong(format!("{flag} {cidr} must be of addresses that a link can have"));
    }
    Ok(())
}

/// The network of special addresses that these have a part of.
fn special(range: AddressRange) -> Option<&'static str> {
    SPECIAL.into_iter().find(|text| text.parse::<AddressRange>().is_ok_and(|special| special.overlaps(range)))
}

/// A Service leads to Pods of its family, and the first family is everybody's who asks for none.
fn families(pods: Cidrs, services: Cidrs) -> Result<(), UsageError> {
    if let Some(lone) = services.iter().find(|cidr| pods.of(cidr.family()).is_none()) {
        let family = lone.family().as_str();
        return wrong(format!(
            "--service-cidr {services} must be of the families of --cluster-cidr {pods}: Pods have no {family} addresses"
        ));
    }
    let first = pods.main().family();
    if first != services.main().family() {
        return wrong(format!(
            "--service-cidr {services} must begin with {}, as --cluster-cidr {pods} does",
            first.as_str()
        ));
    }
    Ok(())
}

fn dns(args: &ServerArgs) -> Result<(), UsageError> {
    let (services, addresses) = (args.service_cidr, args.dns_addresses());
    for (number, dns) in addresses.iter().enumerate() {
        let Some(cidr) = services.iter().find(|cidr| cidr.contains(*dns)) else {
            return wrong(format!("--cluster-dns {dns} must be an address of --service-cidr {services}"));
        };
        let last = (cidr.family() == Family::V4).then(|| cidr.last());
        if [cidr.nth(0), cidr.nth(1), last].contains(&Some(*dns)) {
            return wrong(format!(
                "--cluster-dns {dns} must be free: the first two addresses and the last of --service-cidr are taken"
            ));
        }
        if addresses.iter().take(number).any(|other| other.is_ipv4() == dns.is_ipv4()) {
            return wrong(format!("--cluster-dns {} must have one address of a family", list(&addresses)));
        }
    }
    match addresses.first() {
        Some(first) if !services.main().contains(*first) => wrong(format!(
            "--cluster-dns {} must begin with an address of {}: Pods ask it first",
            list(&addresses),
            services.main()
        )),
        _ => Ok(()),
    }
}

/// The `kubernetes` Service has an address of the first family, and leads to addresses of the same.
fn advertised(args: &ServerArgs) -> Result<(), UsageError> {
    let family = args.service_cidr.main().family();
    let bound = Some(args.bind_address).filter(|ip| !ip.is_unspecified());
    let (flag, address, or) = match (args.advertise_address, bound) {
        (Some(address), _) => ("--advertise-address", address, ""),
        (None, Some(bound)) => ("--bind-address", bound, ", or another --advertise-address must be given"),
        (None, None) => return Ok(()),
    };
    if Family::of(address) != family {
        return wrong(format!(
            "{flag} {address} must be an {} address, as --service-cidr {} begins with that family{or}",
            family.as_str(),
            args.service_cidr,
        ));
    }
    if args.advertise_address.is_some() && special(address.into()).is_some() {
        return wrong(format!("{flag} {address} must be an address that other machines could reach"));
    }
    for (other, cidrs) in [("--cluster-cidr", args.cluster_cidr), ("--service-cidr", args.service_cidr)] {
        if cidrs.contains(address) {
            return wrong(format!("{flag} {address} must lie outside {other} {cidrs}"));
        }
    }
    Ok(())
}

/// The pool of the load balancer is nobody else's.
///
/// # Errors
/// The first range that cannot be.
pub(super) fn balancer_pool(args: &ServerArgs) -> Result<(), UsageError> {
    let pool = &args.servicelb_pool;
    let of = |flag, cidrs: Cidrs| cidrs.iter().map(move |cidr| (flag, AddressRange::from(cidr)));
    let taken = of("--cluster-cidr", args.cluster_cidr).chain(of("--service-cidr", args.service_cidr));
    let taken: Vec<_> = taken.collect();
    for (number, range) in pool.iter().enumerate() {
        let wrong = |why: String| wrong(format!("--servicelb-pool {range} {why}"));
        if args.service_cidr.of(range.family()).is_none() {
            let family = args.service_cidr.main().family().as_str();
            return wrong(format!("must be of {family} addresses: Services have no others"));
        }
        if let Some((flag, other)) = taken.iter().find(|(_, other)| other.overlaps(*range)) {
            return wrong(format!("overlaps {flag} {other}: give the load balancer addresses of its own"));
        }
        if let Some(ip) = args.node_ip.iter().find(|ip| range.contains(**ip)) {
            return wrong(format!("must not contain the Node's address {ip}"));
        }
        if let Some(network) = special(*range) {
            return wrong(format!("overlaps {network}, whose addresses no link can have"));
        }
        if let Some(other) = pool.iter().take(number).find(|other| other.overlaps(*range)) {
            return wrong(format!("overlaps {other} of the same pool"));
        }
    }
    if !pool.is_empty() && !args.runs(Part::Servicelb) {
        return wrong("--servicelb-pool needs the load balancer, which --disable leaves out".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
