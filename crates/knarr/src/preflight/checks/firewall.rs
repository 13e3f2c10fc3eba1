//! Whether somebody else's firewall drops what Pods send: one drop is final, whatever our own rules accept.

use machinery::net::{self, Cidr, Cidrs};
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

/// Whether a chain of this family sees packets of Pods.
fn sees(family: Family, pods: Cidrs) -> bool {
    match family {
        Family::Ipv4 => pods.of(net::Family::V4).is_some(),
        Family::Ipv6 => pods.of(net::Family::V6).is_some(),
        Family::Inet => true,
        Family::Other => false,
    }
}

fn judge(chains: &[BaseChain], pods: Cidrs) -> Finding {
    let drops = chains.iter().find(|chain| {
        sees(chain.family, pods)
            && chain.hook == HOOK_FORWARD
            && chain.policy == POLICY_DROP
            && !chain.table.starts_with("knarr-")
    });
    let Some(chain) = drops else { return Finding::Fine("nothing drops what Pods send".into()) };
    let family = match chain.family {
        Family::Ipv4 => "ip",
        Family::Ipv6 => "ip6",
        Family::Inet | Family::Other => "inet",
    };
    let place = format!("{family} {} {}", chain.table, chain.name);
    let accept = |cidr: Cidr| {
        let ip = if cidr.family() == net::Family::V4 { "ip" } else { "ip6" };
        format!("`nft insert rule {place} {ip} saddr {cidr} accept` and `... {ip} daddr {cidr} accept`")
    };
    let seen = pods.iter().filter(|cidr| sees(chain.family, (*cidr).into()));
    let accepted = seen.map(accept).collect::<Vec<_>>().join(", ");
    Finding::warning(
        format!(
            "the nftables chain {place} drops what it does not know: Pods may not reach one another or the outside"
        ),
        format!("let Pods through: {accepted}"),
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
    fn only_a_foreign_chain_that_drops_what_is_forwarded_of_a_family_of_pods_is_told_of() {
        check(Family::Ipv6, "filter", 2, 0, true);
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
        let both = "10.42.0.0/16,fd42::/56".parse().unwrap();
        let chain = BaseChain { family: Family::Ipv6, table: "filter".into(), ..chain_of_inet() };
        for (chain, expect) in [
            (
                chain,
                "let Pods through: `nft insert rule ip6 filter FORWARD ip6 saddr fd42::/56 accept` and `... ip6 daddr \
                     fd42::/56 accept`",
            ),
            (
                chain_of_inet(),
                "let Pods through: `nft insert rule inet f FORWARD ip saddr 10.42.0.0/16 accept` and `... ip \
                     daddr 10.42.0.0/16 accept`, `nft insert rule inet f FORWARD ip6 saddr fd42::/56 accept` and `... ip6 \
                     daddr fd42::/56 accept`",
            ),
        ] {
            let Finding::Warning { fix, .. } = judge(&[chain], both) else { panic!("no warning") };
            assert_eq!(fix, expect);
        }
    }

    fn chain_of_inet() -> BaseChain {
        let (table, name) = ("f".into(), "FORWARD".into());
        BaseChain { family: Family::Inet, table, name, hook: HOOK_FORWARD, policy: POLICY_DROP }
    }
}
