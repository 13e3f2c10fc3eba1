//! The faults of the cluster: alarms that its members have raised, or that nobody answers.
//!
//! Looked at only when somebody asks, and then at most once in [`KNOWN_FOR`]. Source: upstream's health check of etcd,
//! which is limited to one in two seconds.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tonic::Status;

use super::members::text;
use super::{Core, api};

/// How long an answer is good for.
const KNOWN_FOR: Duration = Duration::from_secs(2);
/// How long the cluster gets to answer. Source: `--etcd-readycheck-timeout`.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The last answer.
#[derive(Default)]
pub(super) struct Faults {
    last: Mutex<Option<(Instant, Vec<String>)>>,
}

impl Core {
    /// A line for each thing that is wrong.
    pub(super) async fn faults(&self) -> Vec<String> {
        let now = Instant::now();
        let last = self.faults.last.lock().clone();
        if let Some((at, faults)) = last
            && now < at + KNOWN_FOR
        {
            return faults;
        }
        let faults = self.look().await;
        *self.faults.last.lock() = Some((Instant::now(), faults.clone()));
        faults
    }

    /// The question goes through the members' log: the answer also says that most of them agree.
    async fn look(&self) -> Vec<String> {
        let request = api::AlarmRequest {};
        let ask = self.members.ask("/etcdserverpb.Maintenance/Alarm", &request);
        let answer: Result<api::AlarmResponse, Status> = match tokio::time::timeout(TIMEOUT, ask).await {
            Ok(attempt) => attempt.result,
            Err(_) => return vec!["etcd does not answer".to_owned()],
        };
        match answer {
            Ok(answer) => answer.alarms.iter().filter_map(line).collect(),
            Err(status) => vec![format!("etcd: {}", text(&status))],
        }
    }
}

fn line(alarm: &api::AlarmMember) -> Option<String> {
    let (name, meaning) = match alarm.alarm() {
        api::AlarmType::None => return None,
        api::AlarmType::NoSpace => ("NOSPACE", "it is over its quota and takes no writes"),
        api::AlarmType::Corrupt => ("CORRUPT", "its data differs from the other members'"),
    };
    Some(format!("etcd member {:x} has the alarm {name}: {meaning}", alarm.member_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_names_its_member_and_says_what_it_means() {
        let check = |alarm: api::AlarmType, expect: Option<&str>| {
            let member = api::AlarmMember { member_id: 0x8e9e_05c5, alarm: alarm.into() };
            assert_eq!(line(&member).as_deref(), expect);
        };
        check(api::AlarmType::None, None);
        check(
            api::AlarmType::NoSpace,
            Some("etcd member 8e9e05c5 has the alarm NOSPACE: it is over its quota and takes no writes"),
        );
        check(
            api::AlarmType::Corrupt,
            Some("etcd member 8e9e05c5 has the alarm CORRUPT: its data differs from the other members'"),
        );
    }
}
