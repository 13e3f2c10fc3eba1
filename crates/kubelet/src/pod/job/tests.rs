//! What a job under way means for its Pod.

use super::*;

#[test]
fn jobs_say_what_they_start_and_what_they_leave() {
    let id = || "x".to_owned();
    for (key, starts, makes, shown) in [
        (JobKey::Volumes, false, true, "volumes"),
        (JobKey::VolumeUpdate, false, true, "volumes-update"),
        (JobKey::Claims, false, true, "claims"),
        (JobKey::Sandbox, true, true, "sandbox"),
        (JobKey::Image(id()), false, false, "image/x"),
        (JobKey::Start(id()), true, true, "start/x"),
        (JobKey::Kill { id: id(), grace: 30 }, false, true, "kill/x/30"),
        (JobKey::BackOff(id()), false, true, "back-off/x"),
        (JobKey::Resize(id()), false, true, "resize/x"),
        (JobKey::Cpus(id()), false, false, "cpus/x"),
        (JobKey::RemoveContainer(id()), false, true, "remove/x"),
        (JobKey::StopSandbox(id()), false, true, "stop/x"),
        (JobKey::RemoveSandbox(id()), false, true, "remove-sandbox/x"),
        (JobKey::Release, false, true, "release"),
        (JobKey::Cleanup, false, true, "cleanup"),
        (JobKey::Delete, false, true, "delete"),
        (JobKey::Refresh, false, false, "refresh"),
        (JobKey::Status, false, false, "status"),
        (JobKey::Wake, false, true, "wake"),
    ] {
        assert_eq!((key.starts_something(), key.makes_something()), (starts, makes), "{key}");
        assert_eq!(key.to_string(), shown);
    }
    assert_ne!(
        JobKey::Kill { id: id(), grace: 30 },
        JobKey::Kill { id: id(), grace: 2 },
        "sooner is another one"
    );
    assert_ne!(JobKey::Start(id()), JobKey::Image(id()));
}
