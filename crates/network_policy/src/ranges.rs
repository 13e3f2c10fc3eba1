//! Sets of numbers as ranges: ports, and addresses of blocks with exceptions.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use machinery::net::{Cidr, Family};

/// A number that has a next one.
pub trait Number: Copy + Ord {
    /// The next larger one.
    fn next(self) -> Option<Self>;
    /// The next smaller one.
    fn previous(self) -> Option<Self>;
}

macro_rules! numbers {
    ($($number:ty)*) => {
        $(impl Number for $number {
            fn next(self) -> Option<Self> {
                self.checked_add(1)
            }
            fn previous(self) -> Option<Self> {
                self.checked_sub(1)
            }
        })*
    };
}
numbers!(u16 u128);

/// First and last numbers in rising order; no two ranges overlap or touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges<N>(Vec<(N, N)>);

impl<N> Default for Ranges<N> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<N: Number> Ranges<N> {
    /// The ranges in order.
    pub fn iter(&self) -> impl Iterator<Item = (N, N)> + '_ {
        self.0.iter().copied()
    }

    /// The number of ranges.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// `true` if there is no number.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the numbers from `first` to `last`.
    pub fn add(&mut self, mut first: N, mut last: N) {
        // What ends before the number before `first`, and what begins behind the number behind `last`, stays as it is.
        let from = self.0.partition_point(|(_, end)| end.next().is_some_and(|next| next < first));
        let to = self.0.partition_point(|(begin, _)| begin.previous().is_none_or(|before| before <= last));
        if let (Some((begin, _)), Some((_, end))) =
            (self.0.get(from), to.checked_sub(1).and_then(|to| self.0.get(to)))
            && from < to
        {
            (first, last) = (first.min(*begin), last.max(*end));
        }
        self.0.splice(from..to.max(from), [(first, last)]);
    }

    /// Takes the numbers from `first` to `last` out.
    pub fn remove(&mut self, first: N, last: N) {
        let parts = self.0.iter().flat_map(|(begin, end)| {
            let before =
                first.previous().filter(|before| begin <= before).map(|before| (*begin, before.min(*end)));
            let behind = last.next().filter(|behind| behind <= end).map(|behind| (behind.max(*begin), *end));
            let is_apart = last < *begin || *end < first;
            let whole = is_apart.then_some((*begin, *end));
            whole.into_iter().chain(before.into_iter().chain(behind).filter(move |_| !is_apart))
        });
        self.0 = parts.collect();
    }
}

/// Addresses of a network but for some. Source: `IPBlock`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The network.
    pub cidr: Cidr,
    /// The parts of it that are not meant.
    pub except: Vec<Cidr>,
}

/// The addresses of a family in any of these blocks.
pub(crate) fn addresses(blocks: &[Block], family: Family) -> Ranges<u128> {
    let mut all = Ranges::default();
    for block in blocks.iter().filter(|block| block.cidr.family() == family) {
        let mut own = Ranges::default();
        let (first, last) = ends(block.cidr);
        own.add(first, last);
        for except in block.except.iter().filter(|except| except.family() == family) {
            let (first, last) = ends(*except);
            own.remove(first, last);
        }
        own.iter().for_each(|(first, last)| all.add(first, last));
    }
    all
}

fn ends(cidr: Cidr) -> (u128, u128) {
    (bits(cidr.first()), bits(cidr.last()))
}

fn bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => ip.to_bits().into(),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

/// The address of a family with this number.
pub(crate) fn address(bits: u128, family: Family) -> IpAddr {
    match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(bits).unwrap_or(u32::MAX))),
        Family::V6 => IpAddr::V6(Ipv6Addr::from_bits(bits)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_the_numbers_that_were_added_and_not_removed() {
        // Every set of small numbers by every order of a few operations.
        let operations: Vec<(bool, u16, u16)> = (0..6_u16)
            .flat_map(|first| (first..6).map(move |last| (first, last)))
            .flat_map(|(first, last)| [(true, first, last), (false, first, last)])
            .collect();
        let mut state = 1_u64;
        for round in 0..3000 {
            let (mut ranges, mut numbers) = (Ranges::<u16>::default(), std::collections::BTreeSet::new());
            for _ in 0..5 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let (adds, first, last) = operations[(state >> 33) as usize % operations.len()];
                if adds {
                    ranges.add(first, last);
                    numbers.extend(first..=last);
                } else {
                    ranges.remove(first, last);
                    numbers.retain(|number| !(first..=last).contains(number));
                }
            }
            let found: Vec<u16> = ranges.iter().flat_map(|(first, last)| first..=last).collect();
            assert_eq!(found, numbers.into_iter().collect::<Vec<_>>(), "round {round}: {ranges:?}");
            let is_apart = ranges.0.windows(2).all(|two| two[0].1 + 1 < two[1].0);
            assert!(is_apart, "round {round}: {ranges:?}");
        }
    }

    fn check(blocks: &[(&str, &[&str])], family: Family, expect: &[(&str, &str)]) {
        let cidr = |text: &str| text.parse::<Cidr>().unwrap();
        let blocks: Vec<Block> = blocks
            .iter()
            .map(|(whole, except)| Block {
                cidr: cidr(whole),
                except: except.iter().map(|it| cidr(it)).collect(),
            })
            .collect();
        let text = |bits| address(bits, family).to_string();
        let found = addresses(&blocks, family);
        let found: Vec<_> = found.iter().map(|(first, last)| (text(first), text(last))).collect();
        let expect: Vec<_> = expect.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        assert_eq!(found, expect, "{blocks:?}");
    }

    #[test]
    fn blocks_are_joined_after_their_exceptions_are_taken_out() {
        use Family::{V4, V6};
        check(&[("10.0.0.0/24", &[])], V4, &[("10.0.0.0", "10.0.0.255")]);
        check(&[("10.0.0.5/24", &[])], V4, &[("10.0.0.0", "10.0.0.255")]);
        check(
            &[("10.0.0.0/24", &["10.0.0.16/28", "10.0.0.0/32"])],
            V4,
            &[("10.0.0.1", "10.0.0.15"), ("10.0.0.32", "10.0.0.255")],
        );
        check(
            &[("10.0.0.0/30", &["10.0.0.0/31"]), ("10.0.0.0/32", &[])],
            V4,
            &[("10.0.0.0", "10.0.0.0"), ("10.0.0.2", "10.0.0.3")],
        );
        check(&[("10.0.0.0/24", &["11.0.0.0/8", "fd00::/8"])], V4, &[("10.0.0.0", "10.0.0.255")]);
        check(&[("10.0.0.0/24", &["10.0.0.0/8"])], V4, &[]);
        check(&[("0.0.0.0/0", &[]), ("::/0", &[])], V4, &[("0.0.0.0", "255.255.255.255")]);
        let last = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
        check(&[("::/0", &["::/128"]), ("10.0.0.0/8", &[])], V6, &[("::1", last)]);
        check(&[("fd00::/127", &[]), ("fd00::2/127", &[])], V6, &[("fd00::", "fd00::3")]);
    }
}
