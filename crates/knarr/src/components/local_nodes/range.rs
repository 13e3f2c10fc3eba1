//! The network of the Nodes on one host: one of each family that collides with nothing that the host knows. Pure.

use machinery::net::{Cidr, Family};

/// Where it is looked for, in this order: private networks (RFC 1918), those first that others use least, and at last
/// the one between a provider and its customers (RFC 6598).
const PLACES_V4: [&str; 4] = ["10.44.0.0/14", "172.24.0.0/13", "192.168.128.0/17", "100.64.0.0/10"];
/// And of IPv6: networks that nobody else is given (RFC 4193).
const PLACES_V6: [&str; 1] = ["fd44::/48"];

/// The first network of a family that overlaps with none of `taken`.
pub(super) fn choose(family: Family, taken: &[Cidr]) -> Option<Cidr> {
    let (places, bits) = match family {
        Family::V4 => (&PLACES_V4[..], 24),
        Family::V6 => (&PLACES_V6[..], 64),
    };
    let places = places.iter().filter_map(|place| place.parse::<Cidr>().ok());
    // A route to everywhere takes nothing.
    let is_free = |cidr: &Cidr| !taken.iter().any(|other| other.bits() > 0 && other.overlaps(*cidr));
    places.flat_map(|place| place.subnets(bits)).find(is_free)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(family: Family, case: &str, taken: &[&str], expected: Option<&str>) {
        let taken: Vec<Cidr> = taken.iter().map(|text| text.parse().unwrap()).collect();
        assert_eq!(choose(family, &taken).map(|cidr| cidr.to_string()).as_deref(), expected, "{case}");
    }

    #[test]
    fn the_first_network_is_taken_that_collides_with_nothing() {
        let rows: [(&str, &[&str], Option<&str>); 7] = [
            ("nothing is there", &[], Some("10.44.0.0/24")),
            ("a default route", &["0.0.0.0/0"], Some("10.44.0.0/24")),
            ("another cluster's Nodes", &["10.44.0.0/24"], Some("10.44.1.0/24")),
            ("one address of it", &["10.44.0.77/32", "192.0.2.0/24"], Some("10.44.1.0/24")),
            ("a whole private network", &["10.0.0.0/8"], Some("172.24.0.0/24")),
            (
                "all that companies use",
                &["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"],
                Some("100.64.0.0/24"),
            ),
            ("everything, in halves", &["0.0.0.0/1", "128.0.0.0/1"], None),
        ];
        for (case, taken, expected) in rows {
            check(Family::V4, case, taken, expected);
        }
    }

    #[test]
    fn the_same_of_ipv6() {
        let rows: [(&str, &[&str], Option<&str>); 4] = [
            ("nothing is there", &["10.44.0.0/24", "fe80::/64"], Some("fd44::/64")),
            ("a default route", &["::/0"], Some("fd44::/64")),
            ("another cluster's Nodes", &["fd44::/64"], Some("fd44:0:0:1::/64")),
            ("all that are nobody's", &["fc00::/7"], None),
        ];
        for (case, taken, expected) in rows {
            check(Family::V6, case, taken, expected);
        }
    }
}
