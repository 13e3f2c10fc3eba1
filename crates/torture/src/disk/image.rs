//! What is on the disk when the power goes: each sector as the last flush left it, or as any write since did.

use std::collections::BTreeMap;

use base::Random;

use super::trace::{Call, PAGE_BYTES, Step};

/// What a disk writes whole.
const SECTOR_BYTES: usize = 512;

type Sector = [u8; SECTOR_BYTES];

/// The effect of a flush on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// What was flushed stays.
    Honest,
    /// Flushes do nothing: `fdatasync` left out. The negative control.
    FlushesIgnored,
    /// Writes that should be on disk when they return are not. The negative control.
    SyncedWritesIgnored,
}

/// Versions of a sector, oldest first: each is what the page cache held after a write.
#[derive(Clone, Debug)]
struct Versions {
    /// On disk for sure.
    durable: Sector,
    is_there: bool,
    /// (call, content) since.
    since: Vec<(usize, Sector)>,
}

/// A file on a disk with a cache.
#[derive(Clone, Debug)]
pub struct Disk {
    power: Power,
    sectors: BTreeMap<u64, Versions>,
    /// Writes that have returned.
    ended: Vec<usize>,
    /// Of each flush under way, how many writes had returned when it began.
    flushing: BTreeMap<usize, usize>,
    /// Whether the folder may know the file.
    may_be_named: bool,
    /// Whether it does for sure.
    is_named: bool,
}

impl Disk {
    /// An empty one.
    #[must_use]
    pub fn new(power: Power) -> Self {
        let (sectors, flushing) = (BTreeMap::new(), BTreeMap::new());
        Self { power, sectors, ended: Vec::new(), flushing, may_be_named: false, is_named: false }
    }

    /// `true` if the file will be found after a power loss, by what POSIX promises.
    #[must_use]
    pub fn is_named(&self) -> bool {
        self.is_named
    }

    /// `true` if the file may be found after a power loss.
    #[must_use]
    pub fn may_be_named(&self) -> bool {
        self.may_be_named
    }

    /// Goes on by one step.
    pub fn step(&mut self, step: &Step, calls: &[Call]) {
        let (number, is_done) = match step {
            Step::Begin(number) => return self.begin(*number, calls),
            Step::End(number, is_done) => (*number, *is_done),
            Step::Print(_) => return,
        };
        match calls.get(number) {
            Some(Call::Write { is_synced, .. }) => {
                self.ended.push(number);
                if *is_synced && is_done && self.power == Power::Honest {
                    self.settle(|call| call == number);
                }
            }
            Some(Call::Hole { .. }) => self.ended.push(number),
            Some(Call::Flush) => {
                let count = self.flushing.remove(&number).unwrap_or(0);
                if is_done && self.power != Power::FlushesIgnored {
                    let before: Vec<usize> = self.ended.drain(..count).collect();
                    self.settle(|call| before.contains(&call));
                }
            }
            Some(Call::FlushFolder) => self.is_named |= is_done && self.may_be_named,
            Some(Call::Name) | None => {}
        }
    }

    fn begin(&mut self, number: usize, calls: &[Call]) {
        match calls.get(number) {
            Some(Call::Write { offset, bytes, .. }) => self.write(number, *offset, bytes),
            Some(Call::Hole { offset, bytes }) => {
                self.write(number, *offset, &vec![0; usize::try_from(*bytes).unwrap_or(0)]);
            }
            Some(Call::Flush) => drop(self.flushing.insert(number, self.ended.len())),
            Some(Call::Name) => self.may_be_named = true,
            _ => {}
        }
    }

    fn write(&mut self, number: usize, offset: u64, bytes: &[u8]) {
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (sector, within) =
                (at / SECTOR_BYTES as u64, usize::try_from(at % SECTOR_BYTES as u64).unwrap_or(0));
            let (part, after) = rest.split_at(rest.len().min(SECTOR_BYTES - within));
            let versions = self.sectors.entry(sector).or_insert_with(|| Versions {
                durable: [0; SECTOR_BYTES],
                is_there: false,
                since: Vec::new(),
            });
            let mut content = versions.since.last().map_or(versions.durable, |(_, content)| *content);
            content.iter_mut().skip(within).zip(part).for_each(|(to, from)| *to = *from);
            versions.since.push((number, content));
            (at, rest) = (at + part.len() as u64, after);
        }
    }

    /// What these calls wrote, and what it lies upon, is on disk.
    fn settle(&mut self, is_flushed: impl Fn(usize) -> bool) {
        for versions in self.sectors.values_mut() {
            if let Some(last) = versions.since.iter().rposition(|(call, _)| is_flushed(*call)) {
                if let Some((_, content)) = versions.since.get(last) {
                    versions.durable = *content;
                }
                versions.is_there = true;
                versions.since.drain(..=last);
            }
        }
    }

    /// The content that may be there after a power loss now. Sectors that were written since the last flush are each old or
    /// new, in any mixture: mostly old, mostly new, or half and half.
    #[must_use]
    pub fn image(&self, random: &Random) -> Vec<u8> {
        let share = [0.0, 0.1, 0.5, 0.9, 1.0];
        let share = share.get(usize::try_from(random.below(5)).unwrap_or(0)).copied().unwrap_or(0.5);
        let last = self.sectors.last_key_value().map_or(0, |(sector, _)| sector + 1);
        let bytes = (last * SECTOR_BYTES as u64).next_multiple_of(PAGE_BYTES);
        let mut image = vec![0; usize::try_from(bytes).unwrap_or(0)];
        for (sector, versions) in &self.sectors {
            let is_new = !versions.since.is_empty() && random.unit() < share;
            let which = usize::try_from(random.below(versions.since.len() as u64)).unwrap_or(0);
            let content = match versions.since.get(which) {
                Some((_, content)) if is_new => content,
                _ => &versions.durable,
            };
            let at = usize::try_from(sector * SECTOR_BYTES as u64).unwrap_or(0);
            image.iter_mut().skip(at).zip(content).for_each(|(to, from)| *to = *from);
        }
        image
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(offset: u64, byte: u8, sectors: usize) -> Call {
        Call::Write { offset, bytes: vec![byte; sectors * SECTOR_BYTES], is_synced: false }
    }

    /// Every first byte of the sectors of many images.
    fn seen(power: Power, calls: &[Call]) -> std::collections::BTreeSet<Vec<u8>> {
        let mut disk = Disk::new(power);
        for number in 0..calls.len() {
            disk.step(&Step::Begin(number), calls);
            disk.step(&Step::End(number, true), calls);
        }
        let random = Random::seeded(1);
        let heads = |image: Vec<u8>| image.into_iter().step_by(SECTOR_BYTES).take(2).collect();
        (0..200).map(|_| heads(disk.image(&random))).collect()
    }

    #[test]
    fn what_was_flushed_stays_and_what_was_not_may_be_torn() {
        let calls = [write(0, 1, 2), Call::Flush, write(0, 2, 2)];
        let all = [[1, 1], [1, 2], [2, 1], [2, 2]].map(|heads| heads.to_vec());
        assert_eq!(seen(Power::Honest, &calls), all.into());
        let flushed = [calls.to_vec(), vec![Call::Flush]].concat();
        assert_eq!(seen(Power::Honest, &flushed), [vec![2, 2]].into());
        assert!(seen(Power::FlushesIgnored, &flushed).contains(&vec![0, 0]));
    }

    #[test]
    fn a_hole_is_there_when_it_was_flushed() {
        let hole = Call::Hole { offset: 0, bytes: SECTOR_BYTES as u64 };
        let calls = [write(0, 1, 2), Call::Flush, hole];
        assert_eq!(seen(Power::Honest, &calls), [vec![0, 1], vec![1, 1]].into());
        let flushed = [calls.to_vec(), vec![Call::Flush]].concat();
        assert_eq!(seen(Power::Honest, &flushed), [vec![0, 1]].into());
    }

    #[test]
    fn a_synced_write_is_there_and_flushes_nothing_else() {
        let synced = Call::Write { offset: 512, bytes: vec![9; SECTOR_BYTES], is_synced: true };
        let calls = [write(0, 1, 1), synced];
        assert_eq!(seen(Power::Honest, &calls), [vec![0, 9], vec![1, 9]].into());
        assert!(seen(Power::SyncedWritesIgnored, &calls).contains(&vec![1, 0]));
    }
}
