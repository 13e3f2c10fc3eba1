//! Several candidates for one Lease, on a network that comes and goes: at no time do two of them lead, and when the network is
//! well one of them does.
//!
//! Source: what `leaderelection` of `client-go` promises; its own tests try one candidate at a time. A failure prints its seed.

use base::Random;

use super::*;

const CANDIDATES: usize = 4;
const SECONDS: u64 = 900;

/// One who would lead.
struct Candidate {
    election: Election,
    /// Until when it reaches nobody.
    cut_off_until: u64,
    /// What it has seen of the Lease, and since when by its own clock.
    seen: (Option<u64>, Option<Lease>, u64),
    /// When the last renewal was sent that was answered, while it leads.
    renewed: Option<u64>,
}

/// The Lease as the server has it.
#[derive(Default)]
struct Server {
    revision: u64,
    lease: Option<Lease>,
}

impl Candidate {
    fn new(identity: &'static str) -> Self {
        let election = Election {
            namespace: "kube-system".into(),
            name: "kube-scheduler",
            identity: identity.into(),
            timing: Timing::default(),
        };
        Self { election, cut_off_until: 0, seen: (None, None, 0), renewed: None }
    }

    /// One second of its life.
    fn live(&mut self, server: &mut Server, now: u64) {
        let Timing { renew_deadline, renew_every, .. } = self.election.timing;
        if self.renewed.is_some_and(|renewed| now - renewed >= renew_deadline.as_secs()) {
            self.renewed = None;
        }
        if now < self.cut_off_until {
            return;
        }
        if self.seen.0 != Some(server.revision) {
            self.seen = (Some(server.revision), server.lease.clone(), now);
        }
        if self.renewed.is_some_and(|renewed| now - renewed < renew_every.as_secs()) {
            return;
        }
        let unchanged = Duration::from_secs(now - self.seen.2);
        let time = Timestamp::from_second(i64::try_from(now).expect("a time")).expect("a time");
        match next_step(&self.election, self.seen.1.as_ref(), unchanged, time) {
            Step::Wait(_) => self.renewed = None,
            Step::Write(_, lease) => {
                server.revision += 1;
                server.lease = Some(*lease);
                self.renewed = Some(now);
            }
        }
    }
}

fn simulate(seed: u64) {
    let random = Random::seeded(seed);
    let mut server = Server::default();
    let mut all: Vec<_> = ["a", "b", "c", "d"].into_iter().map(Candidate::new).collect();
    let (mut well_since, mut leaders) = (0, std::collections::BTreeSet::new());
    for now in 1..SECONDS {
        // In the last part the network is well.
        if now < SECONDS - 60 && random.below(20) == 0 {
            let number = usize::try_from(random.below(CANDIDATES as u64)).expect("a number");
            all[number].cut_off_until = now + random.below(40);
            well_since = now + 40;
        }
        let first = usize::try_from(random.below(CANDIDATES as u64)).expect("a number");
        for number in 0..CANDIDATES {
            all[(first + number) % CANDIDATES].live(&mut server, now);
            let leading: Vec<_> = all
                .iter()
                .filter(|one| one.renewed.is_some())
                .map(|one| one.election.identity.clone())
                .collect();
            assert!(leading.len() <= 1, "seed {seed}: {leading:?} at {now}");
            leaders.extend(leading);
        }
        if now > well_since + 16 {
            assert!(all.iter().any(|one| one.renewed.is_some()), "seed {seed}: nobody leads at {now}");
        }
    }
    let transitions = server.lease.and_then(|lease| lease.spec?.lease_transitions).unwrap_or(0);
    assert!(leaders.len() > 1 && transitions > 0, "seed {seed}: {leaders:?}, {transitions} transitions");
}

#[test]
fn at_no_time_do_two_lead_and_where_the_network_is_well_one_does() {
    for seed in 0..50 {
        simulate(seed);
    }
}
