//! Whether somebody else's firewall drops what Pods send: one drop is final, whatever our own rules accept.

use machinery::net::Cidrs;
use sys::nftables::{BaseChain, Family, base_chains};

use super::{Finding, Subject};

/// Source: `include/uapi/linux/netfilter.h`.
const HOOK_FORWARD: u32 = 2;
const POLICY_DROP: u32 = 0;

pub(super) fn forwarding(subject: &Subject<'_>) -> Finding {
    match base_chains() {
        Ok(chains) => judge(&chains, subject.args.cluster_cidr),
        Err(error) => Finding::failure(format!("cannot list nftables chains: {error}"), "run this as root"),
    }
}

fn judge(chains: &[BaseChain], pods: Cidrs) -> Finding {
    let drops = chains.iter().find(|chain| {
        let of_ipv4 = matches!(chain.family, Family::Ipv4 | Family::Inet);
        of_ipv4
            && chain.hook == HOOK_FORWARD
            && chain.policy == POLICY_DROP
            && !chain.table.starts_with("knarr-")
    });
    let Some(chain) = drops else { return Finding::Fine("nothing drops what Pods send".into()) };
    let family = if chain.family == Family::Ipv4 { "ip" } else { "inet" };
    let place = format!("{family} {} {}", chain.table, chain.name);
    Finding::warning(
        format!(
            "the nftables chain {place} drops what it does not know: Pods may not reach one another or the outside"
        ),
        format!(
            "let Pods through: `nft insert rule {place} ip saddr {pods} accept` and `... ip daddr {pods} accept`"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(family: Family, table: &str, hook: u32, policy: u32, is_fine: bool) {
        let chain = BaseChain { family, table: table.into(), name: "FORWARD".into(), hook, policy };
        let finding = judge(&[chain], "10.42.0.0/16".parse().unwrap());
        assert_eq!(matches!(finding, Finding::Fine(_)), is_fine, "{finding:?}");
    }

    #[test]
    fn only_a_foreign_chain_that_drops_forwarded_ipv4_is_told_of() {
        check(Family::Ipv4, "filter", 2, 0, false);
        check(Family::Inet, "firewalld", 2, 0, false);
        check(Family::Ipv4, "filter", 2, 1, true);
        check(Family::Ipv4, "filter", 1, 0, true);
        check(Family::Other, "filter", 2, 0, true);
        check(Family::Ipv4, "knarr-1-pods", 2, 0, true);
    }

    #[test]
    fn the_advice_names_the_chain_and_the_pods() {
        let chain = BaseChain {
            family: Family::Ipv4,
            table: "filter".into(),
            name: "FORWARD".into(),
            hook: HOOK_FORWARD,
            policy: POLICY_DROP,
        };
        let Finding::Warning { fix, .. } = judge(&[chain], "10.42.0.0/16".parse().unwrap()) else {
            panic!("no warning")
        };
        assert!(fix.contains("`nft insert rule ip filter FORWARD ip saddr 10.42.0.0/16 accept`"), "{fix}");
    }
}
